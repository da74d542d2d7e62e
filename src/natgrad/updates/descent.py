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
from natgrad.core import NON_FINITE, TAKEN, Algorithm, Batch, Direction, Info, Model, Objective, State, finite


def descent(
    objective: Objective,
    direction: Direction,
    optimizer: optax.GradientTransformation,
    *,
    scale: Callable[[Int[Array, ""]], Any] = lambda steps: 1.0,
    average: float = 0.0,
    witness: Callable[[Model], Any] = lambda update: update,
) -> Algorithm:
    """Compose an objective, a direction and an optax optimiser into a training method.

    The optimiser's result times `scale`, a function of the step, is added to the model: a learning rate that
    is not part of the optimiser but `scale=lambda steps: -rate` saves a plain step from storing its update.
    With `average`, an exponential average of the models is kept for evaluation: over about the last
    tenth of the steps so far, and at most 1 / (1 - average) of them. `witness` is a part of an update that is
    not finite if anything in it is not: to look at less of it takes less time.
    """

    def init(key: PRNGKeyArray, model: Model, batch: Batch) -> State:
        key_objective, key_direction = jax.random.split(key)
        carry = objective.init(key_objective, model)
        estimate, _ = jax.eval_shape(objective.estimate, key_objective, carry, model, batch)
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
        estimate, carry = objective.estimate(key_estimate, state.objective, state.model, batch)
        move, measured, evidence = direction.apply(key_direction, state.direction, state.model, estimate)
        shaped, optimized = optimizer.update(move, state.optimizer, state.model)
        factor = scale(state.steps)
        model = tree.axpy(factor, shaped, state.model)
        seen = witness(shaped)
        taken = finite(estimate.value, factor**2 * tree.vdot(seen, seen))
        mean = tree.blend(_memory(average, state.steps), state.average, model) if average else ()
        after = State(model, carry, (), optimized, state.steps + 1, mean)
        before = state._replace(direction=(), steps=state.steps + 1)
        kept = tree.select(taken, after, before)
        result = jnp.where(taken, TAKEN, NON_FINITE)
        info = Info(
            estimate.value, result, estimate.diagnostics, estimate.gradient, move, shaped, factor, evidence
        )
        return kept._replace(direction=direction.keep(taken, state.direction, measured)), info

    return Algorithm(init, step)


def _memory(most: float, steps: Int[Array, ""]) -> Float[Array, ""]:
    """How much of the average stays: little at first, when it is of the initial model only."""
    count = steps.astype(jnp.zeros(()).dtype)
    return jnp.minimum(most, (1 + count) / (10 + count))
