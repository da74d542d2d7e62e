"""A chunk of steps as one compiled loop, and the sums it leaves.

The number of steps is not compiled in: one program serves chunks of any length.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad import tree
from natgrad.core import TAKEN, Algorithm, Info, State
from natgrad.data import batches
from natgrad.models.bernoulli import Coding
from natgrad.updates.diagnose import diagnose


class Totals(NamedTuple):
    """Sums over the steps since the last evaluation, and the diagnostics of the latest."""

    value: Float[Array, ""]
    taken: Int[Array, ""]
    failed: Int[Array, ""]
    sums: dict[str, Float[Array, ""]]
    latest: dict[str, Float[Array, ""]]

    def means(self) -> dict[str, Any]:
        """The totals as a row of the trace."""
        count = max(int(self.taken), 1)
        loss = float(self.value) / count if int(self.taken) else None
        means = {name: float(value) / count for name, value in self.sums.items()}
        latest = {name: float(value) for name, value in self.latest.items()}
        return {"train_loss": loss, "steps_refused": int(self.failed)} | means | latest


def shapes(algorithm: Algorithm, key: PRNGKeyArray, state: State, batch: Any) -> Totals:
    """The shapes of the totals of a method."""
    return jax.eval_shape(lambda k, s, b: _totals(algorithm.step(k, s, b)[1]), key, state, batch)


def chunk(algorithm: Algorithm, size: int, coding: Coding) -> Callable[..., tuple[State, Totals]]:
    """A function that takes steps `start` to `stop` of an epoch with batches of `size` rows."""

    def advance(
        key: PRNGKeyArray,
        state: State,
        totals: Totals,
        rows: batches.Rows,
        order: Array,
        start: Array,
        stop: Array,
    ) -> tuple[State, Totals]:
        def body(position: Array, carried: tuple[State, Totals]) -> tuple[State, Totals]:
            state, totals = carried
            key_draw, key_step = jax.random.split(jax.random.fold_in(key, state.steps))
            chosen = jax.lax.dynamic_slice(order, (position * size,), (size,))
            on = batches.draw(key_draw, rows, chosen, jnp.zeros(()).dtype)
            state, info = algorithm.step(key_step, state, coding.value(on, on.dtype))
            latest = jax.lax.cond(position + 1 == stop, lambda: diagnose(info), lambda: totals.latest)
            return state, _add(totals, info, latest)

        return jax.lax.fori_loop(start, stop, body, (state, totals))

    return advance


def _totals(info: Info) -> Totals:
    zero = jnp.zeros((), jnp.int32)
    return Totals(info.value, zero, zero, info.diagnostics, diagnose(info))


def _add(totals: Totals, info: Info, latest: dict[str, Array]) -> Totals:
    taken = info.result == TAKEN
    value, sums = tree.select(
        taken, (info.value, info.diagnostics), tree.zeros((info.value, info.diagnostics))
    )
    return Totals(
        totals.value + value,
        totals.taken + taken.astype(jnp.int32),
        totals.failed + (~taken).astype(jnp.int32),
        tree.add(totals.sums, sums),
        latest,
    )
