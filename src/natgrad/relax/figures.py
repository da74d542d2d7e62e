"""The slides' figures: flows of E[f] over the independence model and Gaussians, and balls of divergence.

Blue curves follow the vanilla gradient of the panel's chart, red ones the natural gradient; dots are starts,
squares are ends. Gray lines are levels of E[f].
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.errors import InputError
from natgrad.evaluate.pictures import save_figure
from natgrad.families import chart, family, gaussian
from natgrad.families.gaussian_charts import deviation_chart, moment_chart
from natgrad.families.independence import Independence
from natgrad.geometry import flows
from natgrad.relax.expressions import parse
from natgrad.relax.relaxation import Polynomial, enumerated_mean, gaussian_expectation, moment

VANILLA, NATURAL = "#1f5fbf", "#c8321e"
FAMILIES = ("bernoulli", "gaussian")


class FlowPicture(NamedTuple):
    """One picture: E[f] in a chart, its fields, a window, starts, how long and how far flows go, an edge."""

    title: str
    value: Callable[[Any], Any]
    fields: tuple[flows.Field, flows.Field]
    window: tuple[float, float, float, float]
    starts: np.ndarray
    until: tuple[float, float]
    labels: tuple[str, str]
    inside: tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]
    edge: list[tuple[float, float]] | None = None


def draw_flows(expression: str, kind: str, out: Path) -> dict[str, Any]:
    """Flows of a polynomial over a family; returns where they end, and writes a picture."""
    function = parse(expression)
    if kind not in FAMILIES or function.size > 2 or (kind == "bernoulli" and function.size != 2):
        raise InputError(
            "flows are drawn for two binary variables (bernoulli) or for one or two real ones (gaussian), "
            f"got {function.size} variables and {kind!r}; change the function or the family"
        )
    make = _square if kind == "bernoulli" else _half_plane if function.size == 1 else _plane
    way = "descent" if kind == "bernoulli" else "ascent"
    with jax.enable_x64(True):
        ends = render(make(function), f"{way} on E[f], f = {expression}", out)
    return {"picture": str(out), "ends": ends}


def _square(function: Polynomial) -> list[FlowPicture]:
    """Descent over the independence model, in mu and in theta.

    In mu, E[f] is a polynomial that continues outside the square, where the vanilla flow goes.
    """
    member = Independence(2)
    grid = np.linspace(0.1, 0.9, 5)
    starts = np.array([(a, b) for a in grid for b in grid])
    value, theta = enumerated_mean(lambda points: function(points), member), chart.natural_chart(member)

    def in_mu(mu: Any) -> Any:
        return function(2 * mu - 1)

    def plain(mu: Any) -> Any:
        return -jax.grad(in_mu)(mu)

    def natural(mu: Any) -> Any:
        return mu * (1 - mu) * plain(mu)  # the inverse Fisher of mu, good at the vertices, too

    def near(limit: float, center: float) -> Callable[[Any], Any]:
        return lambda point: jnp.all(jnp.abs(point - center) < limit)

    fields = flows.vanilla_field(value, theta), flows.natural_field(value, theta)
    wide, window = near(0.75, 0.5), (-0.25, 1.25, -0.25, 1.25)
    names = (r"$\mu_1$", r"$\mu_2$"), (r"$\theta_1$", r"$\theta_2$")
    box, there = (-3.2, 3.2, -3.2, 3.2), np.arctanh(2 * starts - 1)
    return [
        FlowPicture(
            "marginals μ",
            in_mu,
            (plain, natural),
            window,
            starts,
            (0.6, 8.0),
            names[0],
            (wide, wide),
            [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)],
        ),
        FlowPicture(
            "natural parameters θ",
            value,
            fields,
            box,
            there,
            (6.0, 3.0),
            names[1],
            (near(3.2, 0.0),) * 2,
        ),
    ]


def _half_plane(function: Polynomial) -> list[FlowPicture]:
    """Ascent over one Gaussian variable, in (mean, standard deviation)."""
    member = gaussian.diagonal_gaussian(1)
    used = deviation_chart(member)
    expected = gaussian_expectation(function, member)
    reach = 2.6 if max(map(len, function.terms)) > 2 else 1.6
    starts = np.array([(m, s) for s in (0.5, 1.0) for m in np.linspace(-0.9 * reach, 0.9 * reach, 7)])
    if reach > 2:
        starts = np.append(starts, [(-1.2, 1.0)], axis=0)  # here vanilla and natural flows end differently

    def value(point: Any) -> Any:
        return expected(used.natural(point))

    def above(point: Any) -> Any:
        return point[1] > 1e-4

    fields = flows.vanilla_field(expected, used, sign=1.0), flows.natural_field(expected, used, sign=1.0)
    window, names = (-reach, reach, 0.0, 1.3), (r"$\mu$", r"$\sigma$")
    title = "mean and standard deviation"
    return [FlowPicture(title, value, fields, window, starts, (8.0, 2e4), names, (above, above))]


def _plane(function: Polynomial) -> list[FlowPicture]:
    """Ascent over two Gaussian variables in (mean, covariance), projected onto the means.

    The vanilla flow takes its covariance out of the cone in finite time; means continue, as in the slides.
    """
    member = gaussian.full(2)
    used = moment_chart(member)
    spots = [(m, n) for m in (-1.5, 0.0, 1.5) for n in (-1.5, 0.5, 2.0) if (m, n) != (0.0, 0.5)]
    starts = np.array([(m, n, 1.0, 2.0, -0.5) for m, n in spots])

    def expected(point: Any) -> Any:
        mean, covariance = point[:2], member.symmetric(point[2:])
        pairs = zip(function.coefficients, function.terms, strict=True)
        return sum(c * moment(mean, covariance, term) for c, term in pairs)

    def natural(point: Any) -> Any:
        return jnp.linalg.solve(used.fisher(point), jax.grad(expected)(point))

    def cone(point: Any) -> Any:
        return (point[2] > 1e-6) & (point[2] * point[3] - point[4] ** 2 > 1e-12)

    fields, names = (jax.grad(expected), natural), (r"$\mu_1$", r"$\mu_2$")
    return [
        FlowPicture(
            "means",
            lambda point: function(point),
            fields,
            (-2.0, 2.0, -2.0, 2.5),
            starts,
            (5.0, 1e4),
            names,
            (None, cone),
        )
    ]


def draw_ball(out: Path, radius: float = 0.02) -> dict[str, Any]:
    """Where KL(N(m0, s0) || N(m, s)) equals a radius, around several Gaussians."""
    from matplotlib.figure import Figure

    member, used = gaussian.diagonal_gaussian(1), deviation_chart(gaussian.diagonal_gaussian(1))
    figure = Figure(figsize=(7, 4.6), dpi=130, layout="constrained")
    axes = figure.subplots()
    means, deviations = np.linspace(-1.3, 1.3, 400), np.linspace(0.08, 1.5, 300)
    with jax.enable_x64(True):
        points = jnp.asarray(np.stack(np.meshgrid(means, deviations), axis=-1).reshape(-1, 2))
        measure = jax.jit(
            jax.vmap(lambda c, p: family.divergence(member, used.natural(c), used.natural(p)), (None, 0))
        )
        for center in [(m, s) for m in (-0.8, 0.0, 0.8) for s in (0.3, 0.6, 1.0)]:
            level = np.asarray(measure(jnp.asarray(center), points)).reshape(300, 400)
            axes.contour(means, deviations, level, [radius], colors=NATURAL, linewidths=1.2)
            axes.plot(*center, ".", color="0.2")
    axes.set(xlabel=r"$\mu$", ylabel=r"$\sigma$", title=f"Gaussians at divergence {radius:g} from the dots")
    axes.set_aspect("equal")
    save_figure(out, figure)
    return {"picture": str(out), "radius": radius}


def render(panels: list[FlowPicture], title: str, out: Path) -> dict[str, Any]:
    """Draw panels side by side; returns where every flow ends."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4 * len(panels), 5.6), dpi=120, layout="constrained")
    ends: dict[str, Any] = {}
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _levels(axes, panel)
        for number, (label, color) in enumerate((("vanilla", VANILLA), ("natural", NATURAL))):
            found = flows.integrate(
                panel.fields[number],
                jnp.asarray(panel.starts),
                panel.until[number],
                inside=panel.inside[number],
            )
            ends[f"{label}, {panel.title}"] = [np.round(path.points[-1], 4).tolist() for path in found]
            _curves(axes, found, color, label)
        axes.set(xlim=panel.window[:2], ylim=panel.window[2:], xlabel=panel.labels[0], ylabel=panel.labels[1])
        axes.set_title(panel.title)
        axes.plot(*np.transpose(panel.edge or [(0, 0)]), color="0.1", lw=1.4)
    figure.axes[0].legend(loc="upper left", framealpha=0.9)
    figure.suptitle(title)
    save_figure(out, figure)
    return ends


def _levels(axes: Any, panel: FlowPicture) -> None:
    left, right, bottom, top = panel.window
    first, second = np.linspace(left, right, 90), np.linspace(bottom + 1e-3, top, 90)
    points = jnp.asarray(np.stack(np.meshgrid(first, second), axis=-1).reshape(-1, 2))
    heights = np.asarray(jax.jit(jax.vmap(lambda point: panel.value(point)))(points)).reshape(90, 90)
    steps = np.unique(np.quantile(heights, np.linspace(0.02, 0.98, 22)))
    axes.contour(first, second, heights, steps, colors="0.75", linewidths=0.7, linestyles="solid")


def _curves(axes: Any, found: list[flows.Flow], color: str, label: str) -> None:
    for number, path in enumerate(found):
        name = label if number == 0 else None
        axes.plot(path.points[:, 0], path.points[:, 1], color=color, lw=1.5, label=name)
        axes.plot(*path.points[0, :2], ".", color="0.2", ms=5)
        axes.plot(*path.points[-1, :2], "s", color=color, ms=4)
        steps = np.linalg.norm(np.diff(path.points[:, :2], axis=0), axis=1).cumsum()
        if len(steps) > 8:
            at = min(int(np.searchsorted(steps, 0.4 * steps[-1])), len(steps) - 1)
            axes.annotate(
                "",
                path.points[at + 1, :2],
                path.points[at, :2],
                arrowprops={"arrowstyle": "->", "color": color},
            )
