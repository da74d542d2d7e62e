"""Parts of a model, and a direction for each: metric, damping, refresh and length of its own."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from natgrad.core import Carry, Direction, Estimate, Info, Model, Numbers, Step

SUMMED = ("step_kl",)  # numbers of the parts that add up
_LARGEST = ("solver_iterations",)


class Part(NamedTuple):
    """Some fields of a model that is a dataclass; none stand for the whole of any model."""

    fields: tuple[str, ...] = ()

    def get(self, model: Model) -> Model:
        """The part of a model, or of a gradient."""
        return {name: getattr(model, name) for name in self.fields} if self.fields else model

    def put(self, model: Model, part: Model) -> Model:
        """The model with that part in place of its own."""
        return dataclasses.replace(model, **part) if self.fields else part

    def spread(self, model: Model, value: Any) -> Model:
        """The model with one value in place of each of these fields: a tree prefix."""
        return dataclasses.replace(model, **dict.fromkeys(self.fields, value))


WHOLE = Part()


class Block(NamedTuple):
    """A part of a model and its direction."""

    part: Part
    direction: Direction


def blockwise(blocks: Mapping[str, Block]) -> Direction:
    """Every part of a model by its own direction; what is in no part keeps its gradient.

    LAPACK calls of a direction wait for those of the one before. Lengths are a tree prefix of the model,
    where directions have them: either all of them or none.
    """

    def init(key: PRNGKeyArray, model: Model, estimate: Estimate) -> dict[str, Carry]:
        return {
            name: block.direction.init(key, model, _of_part(block.part, estimate))
            for name, block in blocks.items()
        }

    def apply(key: PRNGKeyArray, carry: dict[str, Carry], model: Model, estimate: Estimate) -> Step:
        steps: dict[str, Step] = {}
        keys = jax.random.split(key, len(blocks))
        after, vector, length = estimate.after, estimate.gradient, estimate.gradient
        for number, (name, block) in enumerate(blocks.items()):
            own = _of_part(block.part, estimate)._replace(after=after)
            step = block.direction.apply(keys[number], carry[name], model, own)
            steps[name], after = step, step.after
            vector, length = block.part.put(vector, step.vector), block.part.spread(length, step.length)
        lengths = [step.length is not None for step in steps.values()]
        if any(lengths) != all(lengths):
            raise ValueError("expected a length of every direction or of none, got some; give the others one")
        return Step(
            vector,
            {name: step.carry for name, step in steps.items()},
            {name: step.evidence for name, step in steps.items()},
            length if all(lengths) else None,
            after,
            jnp.all(jnp.stack([jnp.asarray(step.sound) for step in steps.values()])),
        )

    def keep(taken: Array, before: dict[str, Carry], after: dict[str, Carry]) -> dict[str, Carry]:
        return {
            name: block.direction.keep(taken, before[name], after[name]) for name, block in blocks.items()
        }

    def describe(info: Info) -> Numbers:
        found = {name: block.direction.describe(_seen(name, block, info)) for name, block in blocks.items()}
        return _together(found)

    return Direction(init, apply, keep, describe)


def _of_part(part: Part, estimate: Estimate) -> Estimate:
    return estimate._replace(gradient=part.get(estimate.gradient))


def _seen(name: str, block: Block, info: Info) -> Info:
    """What a reader may want of one part; a direction that no optimizer changed stays the same object."""
    part = block.part
    direction = part.get(info.direction)
    shaped = direction if info.shaped is info.direction else part.get(info.shaped)
    scale = info.scale if not hasattr(info.scale, part.fields[0]) else getattr(info.scale, part.fields[0])
    return info._replace(
        gradient=part.get(info.gradient),
        direction=direction,
        shaped=shaped,
        scale=scale,
        evidence=info.evidence[name],
    )


def _together(found: Mapping[str, Numbers]) -> Numbers:
    """The numbers of all parts: some add up, of some the largest counts, others keep their part's name."""
    numbers: Numbers = {}
    for name, own in found.items():
        for key, value in own.items():
            if key in SUMMED:
                numbers[key] = numbers[key] + value if key in numbers else value
            elif key in _LARGEST:
                numbers[key] = jnp.maximum(numbers[key], value) if key in numbers else value
            else:
                numbers[f"{name}.{key}"] = value
    return numbers
