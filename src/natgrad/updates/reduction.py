"""Does a step keep its promise? The reduction ratio, and the best of several iterates.

    rho = (L(after) - L(before)) / (-rate g^T d + (1/2) rate^2 d^T F d)

[revisiting eq. 30] divides by the first term only and says that this is Martens' ratio; it is half of it
for a full step on a quadratic, and the usual thresholds 1/4 and 3/4 belong to the ratio above.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natgrad.core import Model


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


def relative_fall(line: Line, rate: Array) -> Float[Array, ""]:
    """By what share of its size the loss falls; below zero where it rises."""
    before = line.before()
    return (before - line.value(rate)) / jnp.maximum(jnp.abs(before), jnp.finfo(before.dtype).tiny)


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
