"""How far to go along a direction: a rate, a line search, or a step of given divergence."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from natgrad.core import Carry, Direction, Estimate, Model, Step
from natgrad.errors import InputError
from natgrad.updates.reduction import Line

Length = Callable[[Line], Float[Array, ""]]


def learning_rate(rate: float | Callable[[Array], Any]) -> Length:
    """A number, or a function of the step such as an optax schedule."""
    return lambda line: jnp.asarray(rate(line.steps) if callable(rate) else rate, line.slope.dtype)


def line_search(start: float = 1.0, *, shrink: float = 0.8, share: float = 1e-2, tries: int = 60) -> Length:
    """Shrink from `start` until the loss falls by that share of what the slope promises; 0 if it never does.

    The rule of Armijo, with the numbers of Hessian-Free [martens2010].
    """
    if not 0 < shrink < 1:
        raise InputError(f"a line search shrinks by a number between 0 and 1, got {shrink}")

    def length(line: Line) -> Float[Array, ""]:
        before = line.before()

        def falls(rate: Array) -> Bool[Array, ""]:
            return line.value(rate) <= before - share * rate * line.slope

        def body(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            tried, rate, _ = carry
            smaller = rate * shrink
            return tried + 1, smaller, falls(smaller)

        first = jnp.asarray(start, line.slope.dtype)
        more = lambda carry: ~carry[2] & (carry[0] < tries)  # noqa: E731
        _, rate, good = jax.lax.while_loop(more, body, (jnp.zeros((), jnp.int32), first, falls(first)))
        return jnp.where(good, rate, 0)

    return length


def divergence_ball(radius: float, *, longest: Length | None = None) -> Length:
    """The step whose divergence, (1/2) rate^2 d^T F d nats, is `radius`, or a shorter one [revisiting eq. 2].

    `longest` is the rate that is never exceeded; 1 by default.
    """
    if not radius > 0:
        raise InputError(f"the radius of a divergence ball must be positive, got {radius}")

    def length(line: Line) -> Float[Array, ""]:
        most = jnp.ones_like(line.slope) if longest is None else longest(line)
        return jnp.minimum(most, jnp.sqrt(2 * radius / jnp.maximum(line.curvature, 1e-30)))

    return length


def paced(direction: Direction, rate: Callable[[Array], Any]) -> Direction:
    """A direction with a rate of its own, beside others that decide their lengths."""

    def init(key: PRNGKeyArray, model: Model, estimate: Estimate) -> Carry:
        return jnp.zeros((), jnp.int32), direction.init(key, model, estimate)

    def apply(key: PRNGKeyArray, carry: Carry, model: Model, estimate: Estimate) -> Step:
        steps, inner = carry
        found = direction.apply(key, inner, model, estimate)
        return found._replace(length=jnp.asarray(rate(steps)), carry=(steps + 1, found.carry))

    def keep(taken: Array, before: Carry, after: Carry) -> Carry:
        return after[0], direction.keep(taken, before[1], after[1])

    return Direction(init, apply, keep, direction.describe)
