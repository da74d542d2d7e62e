"""optax's chain of transformations, whose state tells what became of the last update."""

from typing import Any, NamedTuple

import optax

from natgrad.core import Model
from natgrad.errors import InputError


class LinkedState(NamedTuple):
    """The states of a chain's parts."""

    states: tuple[Any, ...]

    @property
    def evidence(self) -> Any:
        """What became of the last update, by the part that measures gradients."""
        found = [state.evidence for state in self.states if hasattr(state, "evidence")]
        if not found:
            raise InputError("no part of this sequence is a natural_gradient; put one into it")
        return found[0]


def linked(*parts: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """optax's chain of transformations, whose state has the `evidence` of its natural gradient."""
    inner = optax.chain(*map(optax.with_extra_args_support, parts))

    def update(
        updates: Model, state: LinkedState, params: Model | None = None, **extra: Any
    ) -> tuple[Model, LinkedState]:
        found, states = inner.update(updates, state.states, params, **extra)
        return found, LinkedState(states)

    return optax.GradientTransformationExtraArgs(lambda params: LinkedState(inner.init(params)), update)
