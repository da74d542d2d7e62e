"""Gradient flows xi' = -grad F(xi) and natural flows xi' = -I(xi)^-1 grad F(xi), as differential equations.

A flow is what a method does with infinitely many samples and infinitely small steps [slides]. The natural
one is the same curve of distributions in every chart; the vanilla one is another in each. Needs the extra
`flows`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natgrad.errors import InputError
from natgrad.families.chart import Chart, Coordinates
from natgrad.families.family import Natural

Field = Callable[[Coordinates], Coordinates]
_STEPS = 4096


class Flow(NamedTuple):
    """A curve: times and points; `left` tells that it came to the edge of its domain before the last time."""

    times: Float[np.ndarray, " time"]
    points: Float[np.ndarray, "time parameter"]
    left: bool


def vanilla(value: Callable[[Natural], Array], chart: Chart, *, sign: float = -1.0) -> Field:
    """The Euclidean field of a chart, downhill by default, uphill with `sign=1`."""

    def field(point: Coordinates) -> Coordinates:
        return sign * jax.grad(lambda xi: value(chart.natural(xi)))(point)

    return field


def natural(value: Callable[[Natural], Array], chart: Chart, *, sign: float = -1.0) -> Field:
    """The Riemannian field in a chart: the inverse of its Fisher times the gradient."""
    plain = vanilla(value, chart, sign=sign)

    def field(point: Coordinates) -> Coordinates:
        return jnp.linalg.solve(chart.fisher(point), plain(point))

    return field


def flow(
    field: Field,
    starts: Float[Array, "curve parameter"],
    until: float,
    *,
    frames: int = 200,
    inside: Callable[[Coordinates], Array] | None = None,
) -> list[Flow]:
    """Follow a field from many starts at once up to a time, or up to where `inside` no longer holds."""
    try:
        import diffrax
    except ImportError:
        raise InputError("flows need diffrax, which is not installed; install natgrad[flows]") from None
    shape = float(np.log(1e3 * until + 3))  # flows slow down: frames at growing distances
    times = jnp.minimum(until * jnp.expm1(shape * jnp.linspace(0, 1, frames)) / float(np.expm1(shape)), until)
    event = None
    if inside is not None:
        event = diffrax.Event(lambda t, y, args, **_: ~inside(y))

    def solve(start: Coordinates) -> tuple[Array, Array]:
        found = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: field(y)),
            diffrax.Tsit5(),
            0.0,
            until,
            None,
            start,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=1e-7, atol=1e-9),
            max_steps=_STEPS,
            event=event,
            throw=False,
        )
        return found.ys, found.result == diffrax.RESULTS.successful

    paths, whole = jax.jit(jax.vmap(solve))(starts)
    return [
        _cut(np.asarray(times), np.asarray(path), bool(good)) for path, good in zip(paths, whole, strict=True)
    ]


def _cut(times: np.ndarray, path: np.ndarray, whole: bool) -> Flow:
    """Frames after the end are infinite: leave them out."""
    kept = np.all(np.isfinite(path), axis=1)
    return Flow(times[kept], path[kept], not whole or not kept.all())
