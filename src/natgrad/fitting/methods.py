"""Methods for least squares: each is a solver and the options of a natural direction.

    lm             Levenberg-Marquardt, with the acceleration of the geodesic [transtrum2012]
    gauss-newton   the energy natural gradient: little damping, and a line search [muller2023]
    spring         the same with momentum where the residuals do not speak [goldshlager2024]

No method takes a step after which the loss is not lower.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from natgrad.core import Solver
from natgrad.errors import InputError, check_counts
from natgrad.solvers.correction import accelerated, anchored
from natgrad.solvers.cost import automatic
from natgrad.solvers.nystrom import nystrom_gradient
from natgrad.solvers.truncated import small_residual
from natgrad.updates.damping import constant, delayed_gratification, rejecting
from natgrad.updates.lengths import learning_rate, line_search
from natgrad.updates.natural import Options

PRODUCTS = 3000.0  # an exact solve may cost as much: an ill-conditioned one takes as many iterations
_WIDE = 1e20  # how far a damping may be from where it starts


class Method(NamedTuple):
    """A way to find steps, from the mean diagonal of the metric at the start.

    Attributes:
        solver: for the damped system.
        options: from the metric's scale, known where steps are compiled, to damping, length and warm start.
        rows: about how many rows of the residuals make a step, drawn for each; None: all.
    """

    solver: Solver
    options: Callable[[Any], Options]
    rows: int | None = None


def exact_or_iterated(rank: int = 100, iterations: int = 400) -> Solver:
    """Exact at almost any price, else many conjugate gradients with a sketch: spectra of residuals decay."""
    sketched = nystrom_gradient(rank, iterations, stop=small_residual(1e-8))
    return automatic(sketched, products=PRODUCTS)


def marquardt(
    damping: float = 1e-3,
    *,
    up: float = 2.0,
    down: float = 1.5,
    acceleration: float | None = 0.75,
    solver: Solver | None = None,
) -> Method:
    """Levenberg-Marquardt: damping raised where the loss would rise, lowered where it falls.

    Args:
        damping: the first one, as a share of the metric's mean diagonal.
        up: what multiplies it after a step that is rejected.
        down: what divides it after a step that is taken; with 3, as in the paper, three of five steps are
            rejected in the long run, and here one of them costs as much as one that is taken.
        acceleration: how long twice the acceleration may be, as a share of the step; half of it is added.
            None: none.
        solver: exact where that is possible, by default.
    """
    if not damping > 0:
        raise InputError(f"the first damping must be positive, since it is multiplied, got {damping}")
    inner = exact_or_iterated() if solver is None else solver
    chosen = inner if acceleration is None else accelerated(inner, most=acceleration)

    def options(scale: float) -> Options:
        bounds = (damping * scale / _WIDE, damping * scale * _WIDE)
        adapted = delayed_gratification(damping * scale, up=up, down=down, bounds=bounds)
        return Options(damping=adapted, length=learning_rate(1.0))

    return Method(chosen, options)


def energy_natural(damping: float = 1e-6, *, solver: Solver | None = None) -> Method:
    """Gauss-Newton with a constant damping, a share of the metric's mean diagonal, and a line search."""
    _check_share(damping)
    inner = exact_or_iterated() if solver is None else solver
    return Method(inner, lambda scale: _searching(damping * scale))


def spring(
    damping: float = 1e-6, *, momentum: float = 0.9, rows: int | None = None, solver: Solver | None = None
) -> Method:
    """The same from a share of the last direction: what the residuals do not determine is kept.

    With `rows` a step sees only about so many of them, others each time, and momentum keeps what was learned
    from the rest: for problems whose whole system takes too long.
    """
    if not 0 <= momentum < 1:
        raise InputError(f"momentum must be at least 0 and below 1, got {momentum}")
    if rows is not None:
        check_counts(rows=rows)
    _check_share(damping)
    inner = exact_or_iterated() if solver is None else solver
    options = lambda scale: _searching(damping * scale)._replace(warm_start=momentum)  # noqa: E731
    return Method(anchored(inner), options, rows)


METHODS: dict[str, Callable[[], Method]] = {"lm": marquardt, "gauss-newton": energy_natural, "spring": spring}


def method_of(given: str | Method) -> Method:
    """A method, or the one of that name with its defaults."""
    if isinstance(given, Method):
        return given
    if not isinstance(given, str) or given not in METHODS:
        raise InputError(f"expected a method out of {', '.join(METHODS)}, got {given!r}; give one of them")
    return _usual(given)


@cache
def _usual(name: str) -> Method:
    """The same for every fit, whose programs can then be the same."""
    return METHODS[name]()


def _check_share(damping: float) -> None:
    """Refuse a damping below zero."""
    if not damping >= 0:
        raise InputError(f"damping must be zero or positive, got {damping}")


def _searching(damping: float) -> Options:
    return Options(damping=rejecting(constant(damping)), length=line_search(shrink=0.5, share=1e-4, tries=50))
