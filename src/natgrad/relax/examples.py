"""The slides' other two examples as flows: polarization of three outcomes, likelihood of a Gaussian."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.families import gaussian
from natgrad.families.categorical import Categorical
from natgrad.families.gaussian_charts import deviation_chart
from natgrad.geometry import flows
from natgrad.relax.figures import FlowPicture, render
from natgrad.relax.relaxation import mean_log_likelihood, polarization

MEAN, DEVIATION = 0.4, 0.5  # of the data whose likelihood is climbed


def draw_polarization(out: Path) -> dict[str, Any]:
    """Up and down POL(p) over the distributions of three outcomes, seen as (p_1, p_2)."""
    with jax.enable_x64(True):
        panels = [_simplex("maximization", 1.0), _simplex("minimization", -1.0)]
        return {"picture": str(out), "ends": render(panels, "polarization of three outcomes", out)}


def _simplex(title: str, sign: float) -> FlowPicture:
    family = Categorical(3)
    shares = np.linspace(0.1, 0.8, 6)
    starts = np.array([(a, b) for a in shares for b in shares if a + b < 0.95])

    def value(eta: Any) -> Any:
        return polarization(family.probabilities(eta))

    def plain(eta: Any) -> Any:
        return sign * jax.grad(value)(eta)

    def natural(eta: Any) -> Any:
        return (jnp.diag(eta) - jnp.outer(eta, eta)) @ plain(eta)  # I^-1 in eta, good at the edges, too

    def near(eta: Any) -> Any:
        return jnp.all(family.probabilities(eta) > -0.1)  # the vanilla flow does not stop at the edge

    window, names = (-0.12, 1.12, -0.12, 1.12), (r"$p_1$", r"$p_2$")
    edge = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]
    return FlowPicture(
        title, value, (plain, natural), window, starts, (4.0, 200.0), names, (near, near), edge
    )


def draw_likelihood(out: Path) -> dict[str, Any]:
    """Up the mean log-likelihood of data over one Gaussian variable, in (mean, standard deviation)."""
    member = gaussian.diagonal_gaussian(1)
    used = deviation_chart(member)
    with jax.enable_x64(True):
        statistics = jnp.array([MEAN, DEVIATION**2 + MEAN**2])
        value = mean_log_likelihood(member, statistics)
        starts = np.array([(m, s) for s in (0.25, 0.8, 1.3) for m in (-0.9, 0.0, 0.9, 1.5)])
        above = lambda point: point[1] > 1e-3  # noqa: E731
        panel = FlowPicture(
            f"data of mean {MEAN:g} and standard deviation {DEVIATION:g}",
            lambda point: value(used.natural(point)),
            (flows.vanilla_field(value, used, sign=1.0), flows.natural_field(value, used, sign=1.0)),
            (-1.2, 1.8, 0.1, 1.5),
            starts,
            (20.0, 20.0),
            (r"$\mu$", r"$\sigma$"),
            (above, above),
        )
        return {"picture": str(out), "ends": render([panel], "ascent on the likelihood", out)}
