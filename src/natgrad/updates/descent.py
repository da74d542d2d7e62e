"""One step of any method: estimate, measure, move.

    objective -> direction -> optimizer -> model

Plain methods take the gradient itself as direction; natural ones solve with a metric. A step
whose loss or length is not finite is not taken, and says so.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad import tree
from natgrad.core import (
    NON_FINITE,
    TAKEN,
    UNSOLVED,
    Algorithm,
    Batch,
    Direction,
    Info,
    Model,
    Numbers,
    Objective,
    State,
    Step,
)
from natgrad.updates.describe import of_step


def descent(
    objective: Objective,
    direction: Direction,
    optimizer: optax.GradientTransformation,
    *,
    scale: Callable[[Int[Array, ""]], Any] = lambda steps: 1.0,
    average: float = 0.0,
    telling: Callable[[Model], Any] = lambda update: update,
) -> Algorithm:
    """Compose an objective, a direction and an optax optimizer into a training method.

    The optimizer's result times `scale`, a function of the step, is added to the model: a learning rate
    that is not part of the optimizer but `scale=lambda steps: -rate` saves a plain step from storing its
    update. It may be a tree prefix of the model: then parts have rates of their own, which no optimizer
    can cancel. A direction that has a length takes the place of `scale`. With `average`, an exponential
    average of the models is kept for evaluation: over about the last tenth of the steps so far, and at
    most 1 / (1 - average) of them. `telling` is a part of an update that is not finite if anything in it
    is not: to look at less of it takes less time.
    """
    estimated = jax.jit(objective.estimate, inline=True)  # traced once for `init` and for every `step`

    def init(key: PRNGKeyArray, model: Model, batch: Batch) -> State:
        key_objective, key_direction = jax.random.split(key)
        carry = objective.init(key_objective, model, batch)
        estimate, _ = jax.eval_shape(estimated, key_objective, carry, model, batch)
        return State(
            model=model,
            objective=carry,
            direction=direction.init(key_direction, model, estimate),
            optimizer=optimizer.init(model),
            steps=jnp.zeros((), jnp.int32),
            average=model if average else (),
        )

    def step(key: PRNGKeyArray, state: State, batch: Batch) -> tuple[State, Info]:
        key_estimate, key_direction = jax.random.split(key)
        estimate, carry = estimated(key_estimate, state.objective, state.model, batch)
        found = direction.apply(key_direction, state.direction, state.model, estimate)
        shaped, optimized = optimizer.update(found.vector, state.optimizer, state.model)
        factor = scale(state.steps) if found.length is None else tree.scale(-1, found.length)
        model = tree.axpy(factor, shaped, state.model)
        result = _result(found, estimate.value, telling(tree.scale(factor, shaped)))
        taken = result == TAKEN
        mean = tree.blend(_memory(average, state.steps), state.average, model) if average else ()
        after = State(model, carry, (), optimized, state.steps + 1, mean)
        before = state._replace(direction=(), steps=state.steps + 1)
        kept = tree.select(taken, after, before)
        info = Info(
            estimate.value,
            result,
            estimate.diagnostics,
            estimate.gradient,
            found.vector,
            shaped,
            factor,
            found.evidence,
        )
        return kept._replace(direction=direction.keep(taken, state.direction, found.carry)), info

    def describe(info: Info) -> Numbers:
        return of_step(info) | direction.describe(info)

    return Algorithm(init, step, describe)


def _result(found: Step, value: Array, seen: Any) -> Array:
    """Whether a step is taken: the loss and the update must be finite, and the solve must have succeeded."""
    moves = finite(value, tree.vdot(seen, seen))
    return jnp.where(moves, jnp.where(jnp.asarray(found.sound), TAKEN, UNSOLVED), NON_FINITE)


def _memory(most: float, steps: Int[Array, ""]) -> Float[Array, ""]:
    """How much of the average stays: little at first, when it is of the initial model only."""
    count = steps.astype(jnp.zeros(()).dtype)
    return jnp.minimum(most, (1 + count) / (10 + count))


def finite(*values: Any) -> Array:
    """Whether every scalar given is finite."""
    return jnp.all(jnp.isfinite(jnp.stack([jnp.asarray(value) for value in values])))
