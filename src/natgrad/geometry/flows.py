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
Inside = Callable[[Coordinates], Array]
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
    """Follow a field from many starts at once up to a time, or up to where `inside` no longer holds."""
    try:
        import diffrax
    except ImportError:
        raise InputError("flows need diffrax, which is not installed; install natgrad[flows]") from None
    shape = float(np.log(1e3 * until + 3))  # flows slow down: frames at growing distances
    times = jnp.minimum(until * jnp.expm1(shape * jnp.linspace(0, 1, frames)) / float(np.expm1(shape)), until)
    within = _finite if inside is None else lambda point: _finite(point) & inside(point)
    event = None if inside is None else diffrax.Event(lambda t, y, args, **_: ~inside(y))
    outside = np.flatnonzero(~np.asarray(jax.vmap(within)(starts)))
    if outside.size:
        raise InputError(f"every flow starts inside its domain, got start {outside[0]} outside; leave it out")

    def solve(start: Coordinates) -> tuple[Array, Array, Array]:
        found = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: field(y)),
            diffrax.Tsit5(),
            0.0,
            until,
            None,
            start,
            saveat=diffrax.SaveAt(
                subs=[diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True)], dense=inside is not None
            ),
            stepsize_controller=diffrax.PIDController(rtol=1e-7, atol=1e-9),
            max_steps=_STEPS,
            event=event,
            throw=False,
        )
        (path, _), (_, stop) = found.ys, found.ts
        path = path.at[0].set(start)  # also where the field is so steep that the first step fails
        if inside is None:
            return times, path, ~_finite(path)
        return _to_edge(found.evaluate, within, times, path, stop[0])

    clocks, paths, left = jax.jit(jax.vmap(solve))(starts)
    kept = jax.jit(jax.vmap(jax.vmap(within)))(paths)  # frames after the end are infinite
    curves = zip(*map(np.asarray, (clocks, paths, kept, left)), strict=True)
    return [Flow(clock[whole], path[whole], bool(end)) for clock, path, whole, end in curves]


def _finite(point: Coordinates) -> Array:
    return jnp.all(jnp.isfinite(point))


def _to_edge(
    curve: Callable[[Array], Coordinates], within: Inside, times: Array, path: Array, stop: Array
) -> tuple[Array, Array, Array]:
    """Move the first frame outside back to the edge, and those after it to infinity; whether there is one.

    The last step of the solver ends outside, however far, and so may some frames in it.
    """
    good = jax.vmap(within)(path)
    first = jnp.where(good.all(), len(times), jnp.argmin(good))  # the start is inside: never zero

    def halve(_: Array, between: tuple[Array, Array, Coordinates]) -> tuple[Array, Array, Coordinates]:
        low, high, point = between
        middle = (low + high) / 2
        there = curve(middle)
        here = within(there)
        return jnp.where(here, middle, low), jnp.where(here, high, middle), jnp.where(here, there, point)

    between = times[first - 1], jnp.minimum(times[jnp.minimum(first, len(times) - 1)], stop), path[first - 1]
    low, _, point = jax.lax.fori_loop(0, HALVINGS, halve, between)
    after = jnp.arange(len(times))[:, None] >= first
    return times.at[first].set(low), jnp.where(after, jnp.inf, path).at[first].set(point), first < len(times)
