"""`natgrad relax`: flows of an expectation as pictures, and minimization with a convergence plot."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from natgrad.cli.commands import Json, Quiet, _print

relax = App(name="relax", help="Stochastic relaxation: minimize over distributions, and draw natural flows.")
TOY = "x1 + 2 x2 + 3 x1 x2"


@dataclass
class Choices:
    """What to search, how, and for how long."""

    family: str | None = None
    """gaussian, diagonal, bernoulli, pairwise; by default the function's own."""
    method: str | None = None
    """How the distribution is updated, for example adaptive, xnes, rank-mu, pbil, umda, cga."""
    budget: int | None = None
    """Evaluations; by default 1,000 per variable."""
    target: float | None = None
    """Stop as soon as a value this low is found."""
    population: int = 0
    """Points evaluated at a time (0: by the number of variables)."""
    restarts: int = 0
    """How often to start again, with twice the population."""
    seed: int = 0
    """The random seed."""


@relax.command
def flow(
    function: str = TOY, *, family: str = "bernoulli", out: Path = Path("flow.png"), json: Json = False
) -> None:
    """Draw vanilla and natural flows of E[f]: downhill over two binary variables, uphill over Gaussians.

    Parameters
    ----------
    function
        A polynomial, for example "x - 3x^2" with --family gaussian; or a name: polarization (of three
        outcomes), likelihood (of a Gaussian), ball (Gaussians at the same divergence from one).
    family
        bernoulli (two variables) or gaussian (one or two).
    out
        The picture.
    """
    from natgrad.evaluate.pictures import picture_place
    from natgrad.relax import examples, figures

    named = {
        "polarization": examples.draw_polarization,
        "likelihood": examples.draw_likelihood,
        "ball": figures.draw_ball,
    }
    picture_place(out, out)
    found = named[function](out) if function in named else figures.draw_flows(function, family, out)
    ends = found.pop("ends", {})
    shown = {"function": function} | ({} if function in named else {"family": family}) | found
    shown |= {"ends": ends} if json else {f"{name} ends": _distinct(points) for name, points in ends.items()}
    _print(shown, json=json, title="flow")


@relax.command
def minimize(
    function: str = "rosenbrock",
    *,
    size: int = 10,
    choices: Annotated[Choices, Parameter(name="*")] | None = None,
    out: Path | None = None,
    mesh: str | None = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Minimize a function that can only be evaluated; with --out, resumable, and with a convergence plot.

    Parameters
    ----------
    function
        sphere, ellipsoid, discus, cigar, rosenbrock, rastrigin, ackley, onemax, leadingones, nk, maxcut, sat,
        or FILE.py:NAME for your own, which takes one point.
    size
        How many variables.
    out
        A folder for the search; a search that is already there is continued, with the budget given now.
    mesh
        Devices that split the population, as in rows=4.
    """
    from natgrad.relax.minimize import proceed
    from natgrad.relax.runs import Watch, finish, open_search
    from natgrad.training.mesh import on_mesh

    chosen = choices or Choices()
    with on_mesh(mesh):
        called, search = open_search(function, size, chosen, out)
        with Watch(search, out, quiet=quiet) as watch:
            result = proceed(called, search, budget=chosen.budget, watch=watch)
    _print(finish(function, result, out), json=json, title=f"minimized {function}")


def _distinct(points: list[list[float]]) -> str:
    """Where flows end, each place once."""
    places: list[Any] = sorted({tuple(round(value, 1) + 0.0 for value in point) for point in points})
    more = f" and {len(places) - 6} more" if len(places) > 6 else ""
    return "  ".join(str(place) for place in places[:6]) + more
