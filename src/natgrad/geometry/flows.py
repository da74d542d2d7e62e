"""Gradient flows xi' = -grad F(xi) and natural flows xi' = -I(xi)^-1 grad F(xi), as differential equations.

A flow is what a method does with infinitely many samples and infinitely small steps [slides]. The natural
one is the same curve of distributions in every chart; the vanilla one is another in each.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.integrate import DOP853, OdeSolution

from natgrad.errors import InputError
from natgrad.families.chart import Chart, Coordinates
from natgrad.families.family import Natural

Field = Callable[[Coordinates], Coordinates]
Inside = Callable[[Coordinates], Array]
_Compiled = Callable[[np.ndarray], Array]
_STEPS = 4096
HALVINGS = 60  # of the time between two frames, to find the edge: more than float64 has digits


class Flow(NamedTuple):
    """A curve: times and points; `left` tells that it came to the edge of its domain before the last time.

    Every point is inside. Where the curve left, the last one is as close to the edge as numbers allow.
    """

    times: Float[np.ndarray, " time"]
    points: Float[np.ndarray, "time parameter"]
    left: bool


def vanilla_field(value: Callable[[Natural], Array], chart: Chart, *, sign: float = -1.0) -> Field:
    """The Euclidean field of a chart, downhill by default, uphill with `sign=1`."""

    def field(point: Coordinates) -> Coordinates:
        return sign * jax.grad(lambda xi: value(chart.natural(xi)))(point)

    return field


def natural_field(value: Callable[[Natural], Array], chart: Chart, *, sign: float = -1.0) -> Field:
    """The Riemannian field in a chart: the inverse of its Fisher times the gradient."""
    plain = vanilla_field(value, chart, sign=sign)

    def field(point: Coordinates) -> Coordinates:
        return jnp.linalg.solve(chart.fisher(point), plain(point))

    return field


def integrate(
    field: Field,
    starts: Float[Array, "curve parameter"],
    until: float,
    *,
    frames: int = 200,
    inside: Inside | None = None,
) -> list[Flow]:
    """Follow a field from many starts up to a time, or up to where `inside` no longer holds.

    By SciPy's method of order 8: the field is all that is compiled.
    """
    shape = np.log(1e3 * until + 3)  # flows slow down: frames at growing distances
    times = np.minimum(until * np.expm1(shape * np.linspace(0, 1, frames)) / np.expm1(shape), until)
    within = jax.jit(_finite if inside is None else lambda point: _finite(point) & inside(point))
    slope = jax.jit(field)
    begun = np.asarray(starts)
    outside = [number for number, start in enumerate(begun) if not within(start)]
    if outside:
        raise InputError(f"every flow starts inside its domain, got start {outside[0]} outside; leave it out")
    all_within = jax.jit(jax.vmap(within))
    with np.errstate(all="ignore"):  # near an edge fields may be infinite
        return [_followed(slope, start, times, within, all_within) for start in begun]


def _finite(point: Coordinates) -> Array:
    return jnp.all(jnp.isfinite(point))


def _followed(
    slope: _Compiled, start: np.ndarray, times: np.ndarray, within: _Compiled, all_within: _Compiled
) -> Flow:
    """One curve at the times, up to its end or to the edge."""
    curve, end = _curve(slope, start, times[-1], within)
    path = np.full((len(times), len(start)), np.inf)
    if curve is not None:
        reached = times <= end
        path[reached] = curve(times[reached]).T
    path[0] = start
    good = np.asarray(all_within(path))
    if good.all():
        return Flow(times, path, False)
    first = int(np.argmin(good))  # the start is inside: never zero
    if curve is None:
        return Flow(times[:first], path[:first], True)
    time, point = _edge(curve, within, times[first - 1], min(times[first], end), path[first - 1])
    return Flow(np.append(times[:first], time), np.append(path[:first], [point], axis=0), True)


def _curve(slope: _Compiled, start: np.ndarray, until: float, within: _Compiled) -> tuple[Any, float]:
    """A function of time, and the time up to which it is known: the end, or a step beyond the edge."""
    if not np.isfinite(slope(start)).all():
        return None, 0.0
    solver = DOP853(lambda time, point: np.asarray(slope(point)), 0.0, start, until, rtol=1e-7, atol=1e-9)
    clock: list[float] = [0.0]
    parts: list[Any] = []
    while solver.status == "running" and len(parts) < _STEPS and within(solver.y):
        solver.step()
        if solver.status != "failed":
            clock.append(solver.t)
            parts.append(solver.dense_output())
    return OdeSolution(clock, parts) if parts else None, clock[-1]


def _edge(
    curve: Any, within: _Compiled, low: float, high: float, point: np.ndarray
) -> tuple[float, np.ndarray]:
    """The last point inside between a time that is inside and one that is not, by halving."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        there = curve(middle)
        if within(there):
            low, point = middle, there
        else:
            high = middle
    return low, point
