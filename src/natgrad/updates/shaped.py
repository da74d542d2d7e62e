"""Directions made from directions: momentum as a covector, steps of bounded KL length."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from natgrad import tree
from natgrad.core import Direction, Estimate, Model
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.updates.natural import Evidence, fisher_length


def covector_momentum(direction: Direction, decay: float) -> Direction:
    """Average the *gradient* over steps, then measure it by the current metric.

    Averaging directions instead adds vectors of different tangent spaces as if they were one.
    """

    def init(key: PRNGKeyArray, model: Model, estimate: Estimate) -> Any:
        return tree.zeros(model), direction.init(key, model, estimate)

    def apply(key: PRNGKeyArray, carry: Any, model: Model, estimate: Estimate) -> tuple[Model, Any, Any]:
        mean = tree.blend(decay, carry[0], estimate.gradient)
        found, after, evidence = direction.apply(key, carry[1], model, estimate._replace(gradient=mean))
        return found, (mean, after), evidence

    return Direction(init, apply, _keeping(direction))


def trust_region(direction: Direction, radius: float, learning_rate: Callable[[Array], Any]) -> Direction:
    """Shorten a natural direction of either network whose step would be longer than `radius` nats.

    The length of a step is the KL divergence it makes to second order, (1/2) rate^2 d^T F d.
    """

    def init(key: PRNGKeyArray, model: Model, estimate: Estimate) -> Any:
        return jnp.zeros((), jnp.int32), direction.init(key, model, estimate)

    def apply(key: PRNGKeyArray, carry: Any, model: Model, estimate: Estimate) -> tuple[Model, Any, Any]:
        steps, inner = carry
        found, after, evidence = direction.apply(key, inner, model, estimate)
        half = 0.5 * jnp.asarray(learning_rate(steps)) ** 2
        return _shorten(found, estimate.gradient, evidence, radius / half), (steps + 1, after), evidence

    return Direction(init, apply, _keeping(direction))


def _keeping(inner: Direction) -> Callable[[Array, Any, Any], Any]:
    """`keep` of a direction that carries something of its own beside the inner one's carry."""

    def keep(taken: Array, before: Any, after: Any) -> Any:
        return tree.select(taken, after[0], before[0]), inner.keep(taken, before[1], after[1])

    return keep


def _shorten(direction: Helmholtz, gradient: Helmholtz, evidence: Evidence, longest: Array) -> Helmholtz:
    lengths = fisher_length(evidence.factors, gradient, direction)
    below, above = (jnp.sqrt(jnp.minimum(1, longest / jnp.maximum(length, 1e-30))) for length in lengths)
    return Helmholtz(
        below * direction.prior,
        tree.scale(below, direction.generation),
        tree.scale(above, direction.recognition),
        direction.coding,
    )
