"""The steps of a fit, compiled: where it is, where it starts, and how it moves until a rule ends it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from natgrad import tree
from natgrad.core import TAKEN, Algorithm, Batch, Model, State
from natgrad.fitting.ending import RUNNING, Rules, before_its_step, status_of
from natgrad.fitting.units import ParameterUnits

ROOM = 256  # steps between two looks at the clock, at most


class History(NamedTuple):
    """Numbers of every step since the last look: the loss before it, and what became of it."""

    loss: Any
    damping: Any
    accepted: Any
    result: Any


EMPTY = History(*(np.zeros(0),) * 4)


class Progress(NamedTuple):
    """Where a fit is: the state of its method, and what the rules look at."""

    state: State
    refused: Int[Array, ""]
    slow: Int[Array, ""]
    status: Int[Array, ""]
    made: Int[Array, ""]
    history: History


def initial_progress(algorithm: Algorithm, parameters: Model, batch: Batch) -> Progress:
    """Where a fit starts."""
    state = algorithm.init(jax.random.key(0), parameters, batch)
    zero, kind = jnp.zeros((), jnp.int32), state.direction.level.dtype
    return Progress(state, zero, zero, zero + RUNNING, zero, History(*(jnp.zeros(ROOM, kind),) * 4))


def further_progress(
    algorithm: Algorithm, rules: Rules, units: ParameterUnits, at: Progress, batch: Batch, limit: Array
) -> Progress:
    """Up to `limit` steps, fewer where a rule ends the fit."""

    def more(at: Progress) -> Array:
        return (at.status == RUNNING) & (at.made < limit)

    def step(at: Progress) -> Progress:
        key = jax.random.fold_in(jax.random.key(0), at.state.steps)
        state, info = algorithm.step(key, at.state, batch)
        taken = info.result == TAKEN
        evidence = info.evidence.evidence
        gained = taken & ~(evidence.ratio < rules.ftol)
        refused = jnp.where(taken, 0, at.refused + 1)
        slow = jnp.where(taken, jnp.where(gained, 0, at.slow + 1), at.slow)
        slopes = jax.tree.leaves(units.scaled(info.gradient))
        steepest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in slopes]))
        row = History(info.value, evidence.damping, taken, evidence.result)
        put = lambda column, value: column.at[at.made].set(value.astype(column.dtype))  # noqa: E731
        history = jax.tree.map(put, at.history, row)
        status = status_of(rules, info, steepest, refused, slow)
        ended = before_its_step(status)
        kept = tree.select(ended, at.state, state)
        return Progress(kept, refused, slow, status, jnp.where(ended, at.made, at.made + 1), history)

    return jax.lax.while_loop(more, step, at._replace(made=jnp.zeros((), jnp.int32)))
