"""How strong the damping of a metric is: constant, by a schedule, or by whether steps keep their promise."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.errors import InputError
from natgrad.updates.reduction import Line, reduction_ratio, relative_fall

Ratio = Callable[[Line, Array], Float[Array, ""]]


class Damping(NamedTuple):
    """A damping that is carried from step to step as its *level*.

    Attributes:
        start: the first level.
        strength: (steps, level): the damping itself.
        renew: (level, ratio): the next level, after a step whose reduction ratio was looked at.
        ratio: the reduction ratio of a step; None where nobody looks.
        every: how many steps go by from one look to the next.
        least: steps whose ratio is not above that are refused; None: none are.
    """

    start: float
    strength: Callable[[Array, Array], Array]
    renew: Callable[[Array, Array], Array] = lambda level, ratio: level
    ratio: Ratio | None = None
    every: int = 1
    least: float | None = None


def constant(value: float) -> Damping:
    """Always the same."""
    _positive(value)
    return Damping(value, lambda steps, level: level)


def scheduled(schedule: Callable[[Array], Any]) -> Damping:
    """A function of the step's number, for instance an optax schedule."""
    return Damping(1.0, lambda steps, level: level * jnp.asarray(schedule(steps), level.dtype))


def levenberg_marquardt(
    start: float | Damping = 1.0,
    *,
    factor: float = 1.5,
    every: int = 1,
    bounds: tuple[float, float] = (1e-8, 1e8),
    ratio: Ratio = reduction_ratio,
) -> Damping:
    """Multiply by `factor` where the ratio is below 1/4, divide where above 3/4 [martens2010].

    `start` is a number, or a damping whose level is adapted; `bounds` are those of the level.
    """
    base = start if isinstance(start, Damping) else constant(start)

    def renew(level: Array, rho: Array) -> Array:
        worse, better = ~(rho >= 0.25), rho > 0.75  # nan is worse
        change = jnp.where(worse, factor, jnp.where(better, 1 / factor, 1.0)).astype(level.dtype)
        return jnp.clip(level * change, *bounds)

    return base._replace(renew=renew, ratio=ratio, every=every)


def rejecting(damping: Damping) -> Damping:
    """A damping beside which a step that does not lower the loss is refused."""
    return damping._replace(ratio=relative_fall, least=0.0)


def delayed_gratification(
    start: float, *, up: float = 2.0, down: float = 1.5, bounds: tuple[float, float] = (1e-20, 1e20)
) -> Damping:
    """Multiply by `up` where the loss does not fall, divide by `down` where it does [transtrum2012].

    Steps after which the loss would not be lower are refused: it never rises. The paper lowers by more: it
    does not count refused steps, which cost as much as others here.
    """
    if not (up > 1 and down > 1):
        raise InputError(f"a damping is raised and lowered by numbers above one, got {up} and {down}")

    def renew(level: Array, fall: Array) -> Array:
        change = jnp.where(fall > 0, 1 / down, up).astype(level.dtype)  # nan is no fall
        return jnp.clip(level * change, *bounds)

    return rejecting(constant(start))._replace(renew=renew)


def _positive(value: float) -> None:
    if not isinstance(value, jax.core.Tracer) and not value >= 0:
        raise InputError(f"damping must be zero or positive, got {value}")
