"""A chunk of steps as one compiled loop, the sums it leaves, and whether it may be kept.

The number of steps is not compiled in: one program serves chunks of any length. A chunk whose loss
runs away, or most of whose steps had to be refused, is not sound: the session then goes back to the
state before it.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad import tree
from natgrad.core import TAKEN, Algorithm, Batch, Info, State
from natgrad.updates.describe import numbers_by_name


class Totals(NamedTuple):
    """Sums over the steps since the last evaluation, the last loss, the diagnostics of an epoch's end."""

    value: Float[Array, ""]
    last: Float[Array, ""]
    taken: Int[Array, ""]
    failed: Int[Array, ""]
    sums: dict[str, Float[Array, ""]]
    latest: dict[str, Float[Array, "..."]]

    def means(self) -> dict[str, Any]:
        """The totals as a row of the trace."""
        count = max(int(self.taken), 1)
        loss = float(self.value) / count if int(self.taken) else None
        means = {name: float(value) / count for name, value in self.sums.items()}
        return {"train_loss": loss, "steps_refused": int(self.failed)} | means | numbers_by_name(self.latest)


class Course(NamedTuple):
    """A chunk in plain numbers: its mean loss, its last, and the share of its steps that were refused."""

    mean: float
    last: float
    refused: float


def course(before: Totals, after: Totals) -> Course:
    """What happened between two totals."""
    taken, failed = int(after.taken) - int(before.taken), int(after.failed) - int(before.failed)
    mean = (float(after.value) - float(before.value)) / taken if taken else math.inf
    return Course(mean, float(after.last), failed / max(taken + failed, 1))


def is_sound(chunk: Course, limit: float) -> bool:
    """Whether a chunk may be kept: less than half its steps refused, and no loss above the limit."""
    return chunk.refused < 0.5 and chunk.mean <= limit and chunk.last <= limit


def is_settled(found: Course, before: Course | None, steps: int) -> bool:
    """Whether smaller steps leave a chunk's loss as it is: a step's loss is that of the state it begins from.

    `before` is how the chunk went with larger steps. Refused steps are another thing: smaller ones may do.
    """
    return found.refused == 0 and (steps == 1 or found == before)


def complaint(chunk: Course, lowest: float) -> str:
    """Why a chunk is not sound."""
    if chunk.refused >= 0.5:
        return f"{chunk.refused:.0%} of its steps were refused as not finite"
    return f"its loss rose to {max(chunk.mean, chunk.last):.6g}, from {lowest:.6g} at best"


def verdict(step: int, divergences: int, rate: float | None) -> str:
    """That a training is given up: cutting the rate so far did not help; or (None) it cannot help."""
    if rate is None:
        why = f"in the last step before step {step}, which no smaller step undoes; its state"
    else:
        why = f"{divergences} times, although the learning rate was cut to {rate:.3g}; its last good state"
    advice = "train again with a lower --learning-rate or, for a natural method, a higher --damping"
    return f"diverged {why}, of step {step}, is saved: {advice}"


def totals_of(algorithm: Algorithm, info: Info) -> Totals:
    """Totals as shaped as those of a method's steps."""
    zero = jnp.zeros((), jnp.int32)
    return Totals(info.value, info.value, zero, zero, info.diagnostics, algorithm.describe(info))


def no_totals(like: Totals) -> Totals:
    """Totals of no step, by NumPy: nothing is compiled for them."""
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)


def chunk(algorithm: Algorithm, size: int, draw: Callable[..., Batch]) -> Callable[..., tuple[State, Totals]]:
    """A function that takes steps `start` to `stop` of an epoch with drawn batches of `size` rows."""

    def advance(
        key: PRNGKeyArray,
        state: State,
        totals: Totals,
        rows: Any,
        order: Array,
        start: Array,
        stop: Array,
    ) -> tuple[State, Totals]:
        def body(position: Array, carried: tuple[State, Totals]) -> tuple[State, Totals]:
            state, totals = carried
            key_draw, key_step = jax.random.split(jax.random.fold_in(key, state.steps))
            state, info = algorithm.step(key_step, state, draw(key_draw, rows, order, position))
            ends = position + 1 == order.shape[0] // size  # an evaluation can only follow the last batch
            latest = jax.lax.cond(ends, lambda: algorithm.describe(info), lambda: totals.latest)
            return state, _add(totals, info, latest)

        return jax.lax.fori_loop(start, stop, body, (state, totals))

    return advance


def _add(totals: Totals, info: Info, latest: dict[str, Array]) -> Totals:
    taken = info.result == TAKEN
    value, sums = tree.select(
        taken, (info.value, info.diagnostics), tree.zeros((info.value, info.diagnostics))
    )
    return Totals(
        totals.value + value,
        jnp.where(taken, info.value, totals.last),
        totals.taken + taken.astype(jnp.int32),
        totals.failed + (~taken).astype(jnp.int32),
        tree.add(totals.sums, sums),
        latest,
    )
