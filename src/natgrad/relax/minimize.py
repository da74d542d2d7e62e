"""`natgrad.minimize`: the minimum of a function that can only be evaluated, by natural gradient.

The search is over distributions: E_p[f] is lowered over a family by steps along its natural gradient, whose
only ingredients are points drawn from p and the values of f there.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.devices import keep_programs
from natgrad.errors import InputError, check_function, number_of
from natgrad.relax import loop
from natgrad.relax.search import Search, checked_values

_ROOM = 200  # generations between two looks from outside
EVALUATIONS = 1000  # per variable, the default budget


@dataclass(frozen=True)
class Result:
    """What was found: the best point and value, how much was evaluated, the history, and why it ended."""

    point: np.ndarray
    value: float
    evaluations: int
    generations: int
    restarts: int
    invalid: int
    success: bool
    message: str
    seconds: float
    history: dict[str, np.ndarray]
    search: Search

    def __repr__(self) -> str:
        """In a few lines: what was found, by how much, and why it ended."""
        point = np.array2string(self.point, precision=6, threshold=10, separator=", ")
        spent = f"{self.evaluations:,} evaluations, {self.generations} generations, {self.seconds:.1f} s"
        return f"Result: {self.value:.8g} at {point}\n  {spent}: {self.message}"

    def _repr_html_(self) -> str:
        """For notebooks: the same, and the best value against evaluations."""
        from natgrad.evaluate.notebook import html_with_pictures, png_of
        from natgrad.relax.runs import convergence_figure

        return html_with_pictures(repr(self), [png_of(convergence_figure("", self.history))])


def minimize(
    function: Callable[..., Any],
    start: Any,
    *,
    family: str = "gaussian",
    budget: int | None = None,
    target: float | None = None,
    seed: int = 0,
    watch: Callable[[Search], None] | None = None,
    **options: Any,
) -> Result:
    """The lowest value of a function within a budget of evaluations.

    A function wrapped in `jax.jit` runs compiled, many generations at a time; others are called from Python.

    Args:
        function: takes one point (an array) and returns a number; with `batched=True`, takes many points
            [point, variable] and returns as many numbers. NaN is allowed now and then, and counted.
        start: the number of variables, or the point where a continuous search begins.
        family: gaussian, diagonal (independent continuous variables), bernoulli (variables -1 and +1),
            pairwise (the same with interactions along `edges`), mixed (the first `binary` variables binary).
        budget: evaluations, by default 1,000 per variable.
        target: a value that is good enough.
        seed: decides everything that is random.
        watch: called with the search now and then.
        **options: population, spread (standard deviations or a covariance at the start), bounds (low, high),
            restarts, method, edges, zeros, binary, values, rate, raw, batched: see `natgrad.relax.plan.Plan`.

    Example:
        >>> result = minimize(lambda x: float((x - 1) @ (x - 1)), 3, target=1e-6, seed=1)
        >>> result.success
        True
    """
    keep_programs()
    batched = bool(options.pop("batched", False))
    search = Search(start, family=family, seed=seed, target=target, **options)
    return proceed(function, search, budget=budget, batched=batched, watch=watch)


def proceed(
    function: Callable[..., Any],
    search: Search,
    *,
    budget: int | None = None,
    batched: bool = False,
    watch: Callable[[Search], None] | None = None,
) -> Result:
    """Run a search to its end, or to the end of the budget, which counts from the search's very beginning."""
    began = time.perf_counter()
    check_function(function)
    if budget is not None and not np.isfinite(number_of(budget)):
        raise InputError(
            f"budget: expected a number of evaluations, got {budget!r}; leave it out for 1,000 per variable"
        )
    allowed = EVALUATIONS * search.base.size if budget is None else int(budget)
    if allowed < search.plan.points:
        raise InputError(
            f"a budget of {allowed} evaluations is less than one generation of {search.plan.points}; raise it"
        )
    is_jax = hasattr(function, "lower")  # what jax.jit returns has it
    advance = _compiled(function, batched, search) if is_jax else _called(function, batched)
    while not search.finished and allowed - search.evaluations >= search.plan.points:
        advance(search, (allowed - search.evaluations) // search.plan.points)
        if watch is not None:
            watch(search)
    return _result(search, time.perf_counter() - began)


def _called(function: Callable[..., Any], batched: bool) -> Callable[[Search, int], None]:
    """One generation around a Python function."""

    def advance(search: Search, limit: int) -> None:
        del limit
        points = search.ask()
        search.tell(function(points) if batched else [_number(function(point)) for point in points])

    return advance


def _compiled(function: Callable[..., Any], batched: bool, search: Search) -> Callable[[Search, int], None]:
    """Up to `ROOM` generations of a JAX function, whose shapes are checked before anything runs."""
    whole = function if batched else _mapped(function)
    with jax.enable_x64(True):
        number = search.plan.points
        found = jax.eval_shape(whole, jax.ShapeDtypeStruct((number, search.base.size), jnp.float64))
    if getattr(found, "shape", None) != (number,):
        raise InputError(
            f"expected {number} values, one per point, got {getattr(found, 'shape', type(found))}; "
            "return one number per point"
        )

    def advance(search: Search, limit: int) -> None:
        search.advance(whole, min(limit, _ROOM), _ROOM)

    return advance


_MAPPED: dict[Any, Callable[..., Any]] = {}


def _mapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function over a population; the same object each time, so that a second search compiles nothing."""
    return _MAPPED.setdefault(function, jax.vmap(function))


def _number(value: Any) -> float:
    return float(checked_values(np.asarray(value)[None] if np.ndim(value) == 0 else value, 1)[0])


def _result(search: Search, seconds: float) -> Result:
    rows = search.rows
    return Result(
        point=search.best_point,
        value=search.best_value,
        evaluations=search.evaluations,
        generations=int(search.progress.generations),
        restarts=search.restart,
        invalid=search.invalid,
        success=search.best_value <= search.target,
        message=search.message,
        seconds=seconds,
        history={name: rows[:, column] for column, name in enumerate(loop.HISTORY_COLUMNS)},
        search=search,
    )
