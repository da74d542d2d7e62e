"""Does a step keep its promise? The reduction ratio, damping that follows it, the best of several iterates.

    rho = (L(after) - L(before)) / (-rate g^T d + (1/2) rate^2 d^T F d)

[revisiting eq. 30] divides by the first term only and says that this is Martens' ratio; it is half of it
for a full step on a quadratic, and the usual thresholds 1/4 and 3/4 belong to the ratio above.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natgrad import tree
from natgrad.core import Model
from natgrad.errors import InputError


class Line(NamedTuple):
    """A line of descent: where we are, and the loss after a step of some rate along the direction.

    `slope` is g^T d and `curvature` d^T F d (without damping).
    """

    steps: Int[Array, ""]
    before: Callable[[], Float[Array, ""]]
    value: Callable[[Array], Float[Array, ""]]
    slope: Float[Array, ""]
    curvature: Float[Array, ""]


def reduction_ratio(line: Line, rate: Array) -> Float[Array, ""]:
    """Actual over predicted change, the prediction quadratic: 1 where the model of the loss is exact."""
    predicted = -rate * line.slope + 0.5 * rate**2 * line.curvature
    return (line.value(rate) - line.before()) / predicted


def first_order_ratio(line: Line, rate: Array) -> Float[Array, ""]:
    """Actual over predicted change as printed, the prediction of first order only [revisiting eq. 29-30]."""
    return (line.value(rate) - line.before()) / (-rate * line.slope)


class Damping(NamedTuple):
    """How damping begins, and how it follows from the step's number, its own value and the reduction ratio.

    A `ratio` of None means that nobody needs to compute one.
    """

    start: float
    renew: Callable[[Array, Array, Array], Array]
    ratio: Callable[[Line, Array], Array] | None = None


def constant(value: float) -> Damping:
    """Always the same."""
    _positive(value)
    return Damping(value, lambda steps, damping, ratio: damping)


def scheduled(schedule: Callable[[Array], Any]) -> Damping:
    """A function of the step's number, for instance an optax schedule."""
    renew = lambda steps, damping, ratio: jnp.asarray(schedule(steps + 1), damping.dtype)  # noqa: E731
    return Damping(float(schedule(jnp.zeros((), jnp.int32))), renew)


def levenberg_marquardt(
    start: float = 1.0,
    *,
    factor: float = 1.5,
    every: int = 1,
    bounds: tuple[float, float] = (1e-8, 1e8),
    ratio: Callable[[Line, Array], Array] = reduction_ratio,
) -> Damping:
    """Multiply by `factor` where the ratio is below 1/4, divide where above 3/4 [martens2010]."""
    _positive(start)

    def renew(steps: Array, damping: Array, rho: Array) -> Array:
        worse, better = ~(rho >= 0.25), rho > 0.75  # nan is worse
        change = jnp.where(worse, factor, jnp.where(better, 1 / factor, 1.0)).astype(damping.dtype)
        return jnp.where(steps % every == 0, jnp.clip(damping * change, *bounds), damping)

    return Damping(start, renew, ratio)


def backtrack(value: Callable[[Model], Array], iterates: Model, kept: Array) -> tuple[Model, Bool[Array, ""]]:
    """From the last iterate back while the one before is better [martens2010].

    `value` is the loss after a step, `iterates` are [slot, ...] per leaf, the first `kept` filled. Also
    says whether the last one was left.
    """
    at = lambda slot: jax.tree.map(lambda leaf: leaf[slot], iterates)  # noqa: E731
    last = jnp.maximum(kept - 1, 0)

    def better(carry: tuple[Array, Array, Array]) -> Bool[Array, ""]:
        slot, here, before = carry
        return (slot > 0) & ~(before >= here)

    def body(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        slot, _, before = carry
        return slot - 1, before, value(at(jnp.maximum(slot - 2, 0)))

    first = (last, value(at(last)), value(at(jnp.maximum(last - 1, 0))))
    slot = jax.lax.while_loop(better, body, first)[0]
    return at(slot), slot < last


def chosen(condition: Any, yes: Callable[[], Model], no: Model) -> Model:
    """One of two trees; the first is only computed where it is wanted."""
    return jax.lax.cond(condition, yes, lambda: no)


def shifted(parameters: Model, rate: Array, direction: Model) -> Model:
    """The parameters after a step: parameters - rate * direction."""
    return tree.axpy(-rate, direction, parameters)


def _positive(value: float) -> None:
    if not value >= 0:
        raise InputError(f"damping must be zero or positive, got {value}")
