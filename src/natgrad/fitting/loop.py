"""`natgrad.least_squares`: the parameters whose residuals are smallest.

Steps run compiled, many at a time; in between the clock is looked at. Which steps, says the method
(`natgrad.fitting.methods`); when to end, the rules below. The loss never rises.
"""

import inspect
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int

from natgrad import tree
from natgrad.core import TAKEN, Algorithm, Batch, Info, Model, State
from natgrad.devices import keep_programs
from natgrad.errors import InputError, check_counts, check_function, number_of
from natgrad.fitting.methods import Method, method_of
from natgrad.fitting.result import LeastSquaresResult
from natgrad.layers.task import check_parameters
from natgrad.metrics.residuals import (
    Residuals,
    Squares,
    first_look,
    half_square,
    residual_metric,
    squares,
    whole_mean,
)
from natgrad.metrics.some_rows import half_square_by_some, metric_by_some
from natgrad.solvers.results import FAILED, ILL_CONDITIONED, SOLVED
from natgrad.updates.descent import descent
from natgrad.updates.natural import natural

_ROOM = 256  # steps between two looks at the clock, at most
_PAUSE = 0.5  # seconds between two looks
_REFUSALS = 60  # steps refused one after the other: nothing helps any more
_SLOW = 10  # steps taken one after the other that gain little

RUNNING, TARGET, FLAT, SLOW, STUCK, BROKEN, STEPS, SECONDS, WATCHED = range(9)
MESSAGES = {
    TARGET: "the loss is at or below `target`",
    FLAT: "the gradient is at or below `gtol`",
    SLOW: f"{_SLOW} steps lowered the loss by less than `ftol` of itself each",
    STUCK: "no step lowers the loss any further in this precision",
    BROKEN: "the loss or its gradient is not finite; begin elsewhere",
    STEPS: "the limit of steps was reached",
    SECONDS: "the limit of seconds was reached",
    WATCHED: "`watch` ended the fit",
}


class Rules(NamedTuple):
    """When to end: loss, largest entry of the gradient, relative gain of a step, steps, seconds."""

    target: float
    gtol: float
    ftol: float
    steps: int
    seconds: float


class History(NamedTuple):
    """Numbers of every step since the last look: the loss before it, and what became of it."""

    loss: Any
    damping: Any
    accepted: Any
    optimality: Any
    result: Any


class Progress(NamedTuple):
    """Where a fit is: the state of its method, and what the rules look at."""

    state: State
    refused: Int[Array, ""]
    slow: Int[Array, ""]
    status: Int[Array, ""]
    made: Int[Array, ""]
    history: History


def least_squares(
    residuals: Residuals,
    parameters: Model,
    batch: Batch = None,
    *,
    weights: Any = 1.0,
    method: str | Method = "lm",
    by_row: bool | None = None,
    steps: int = 1000,
    watch: Callable[[Model, int], Any] | None = None,
    **limits: float,
) -> LeastSquaresResult:
    """Minimize (1/2) sum_k weight_k mean(r_k^2) over the parameters.

    Args:
        residuals: from (parameters, batch) to an array of residuals, or any tree of them.
        parameters: any tree of floating-point arrays; where it starts, and the precision of everything.
        batch: handed to the residuals: points, data, a tree of them.
        weights: one for each array of residuals, or one number.
        method: "lm", "gauss-newton", "spring", or what the functions of `natgrad.fitting.methods` return.
        by_row: whether a row of an array of residuals depends on the same row of its part of the batch only,
            which saves most of the time. By default that is tried at the start.
        steps: the most that are made, rejected ones included.
        watch: called about twice a second with the parameters and the number of steps; the fit ends where it
            returns something true.
        **limits: target (a loss that is good enough, 0), gtol (largest entry of the gradient, 0), ftol
            (relative gain of a step, ten times in a row, 1e-10), seconds (no limit).

    Example:
        >>> x = jnp.linspace(0.0, 1.0, 20)
        >>> model = lambda p, x: p["height"] * jnp.exp(-p["rate"] * x) - 3 * jnp.exp(-2 * x)
        >>> start = {"height": jnp.asarray(1.0), "rate": jnp.asarray(1.0)}
        >>> found = least_squares(model, start, x, target=1e-9)
        >>> found.success, round(float(found.parameters["rate"]), 2)
        (True, 2.0)
    """
    began = time.perf_counter()
    keep_programs()
    rules = _rules(steps, limits)
    _check_residuals(residuals)
    check_parameters(parameters)
    parameters = jax.tree.map(jnp.asarray, parameters)
    batch = _in_precision_of(parameters, batch)
    problem, scale = _problem(residuals, weights, by_row, parameters, batch)
    algorithm = _algorithm(problem, residuals, method_of(method), scale)
    advance = jax.jit(lambda at, batch, limit: _advance(algorithm, rules, at, batch, limit))
    at = _start(algorithm, parameters, batch)
    rows: list[History] = []
    room = 4
    while int(at.status) == RUNNING:
        left = rules.steps - sum(len(row.loss) for row in rows)
        if left <= 0 or (rows and time.perf_counter() - began >= rules.seconds):
            at = at._replace(status=jnp.asarray(STEPS if left <= 0 else SECONDS, jnp.int32))
            break
        looked = time.perf_counter()
        at = advance(at, batch, jnp.asarray(min(room, left, _ROOM), jnp.int32))
        made = int(at.made)
        rows.append(History(*(np.asarray(column)[:made] for column in at.history)))
        each = (time.perf_counter() - looked) / max(made, 1)
        if watch is not None and watch(at.state.model, sum(len(row.loss) for row in rows)):
            at = at._replace(status=jnp.where(at.status == RUNNING, WATCHED, at.status))
        room = room * 2 if len(rows) == 1 else max(1, min(_ROOM, int(_PAUSE / each)))
    return _result(problem, residuals, at, batch, rows, time.perf_counter() - began)


def _in_precision_of(parameters: Model, batch: Batch) -> Batch:
    """The batch as arrays, whose floating-point numbers are of the kind that parameters are."""
    kind = jnp.result_type(*jax.tree.leaves(parameters))

    def cast(leaf: Any) -> Array:
        found = jnp.asarray(leaf)
        return found.astype(kind) if jnp.issubdtype(found.dtype, jnp.floating) else found

    return jax.tree.map(cast, batch)


def _check_residuals(residuals: Any) -> None:
    """Refuse what is not a function of the parameters and a batch."""
    check_function(residuals)
    try:
        inspect.signature(residuals).bind(None, None)
    except ValueError:
        return  # its arguments cannot be known
    except TypeError:
        raise InputError(
            "expected residuals of two arguments, the parameters and the batch, got a function of others; "
            "write residuals(parameters, batch), where the batch may be left unused"
        ) from None


def _rules(steps: int, limits: dict[str, float]) -> Rules:
    known = {"target": 0.0, "gtol": 0.0, "ftol": 1e-10, "seconds": float("inf")}
    if wrong := sorted(set(limits) - set(known)):
        raise InputError(
            f"expected limits out of {', '.join(known)}, got {wrong[0]}; see natgrad.least_squares"
        )
    check_counts(steps=steps)
    for name, value in limits.items():
        if not number_of(value) >= 0:
            raise InputError(f"{name} must be zero or positive, got {value}; leave it out for the default")
    return Rules(steps=steps, **(known | limits))


def _problem(
    residuals: Residuals, weights: Any, by_row: bool | None, parameters: Model, batch: Batch
) -> tuple[Squares, float]:
    """The sum of squares, and the scale of its metric."""
    if by_row is None:
        apart, mean = first_look(residuals, weights, parameters, batch)
        return squares(residuals, weights, by_row=apart), mean
    problem = squares(residuals, weights, by_row=by_row)
    return problem, whole_mean(problem, parameters, batch)


def _algorithm(problem: Squares, residuals: Residuals, method: Method, scale: float) -> Algorithm:
    """The method with a damping on the scale of the metric at the start."""
    usable = scale if 0 < scale < float("inf") else 1.0
    if method.rows is None:
        objective, metric = half_square(problem), residual_metric(problem)
    else:
        objective, metric = half_square_by_some(problem, residuals, method.rows), metric_by_some(problem)
    options = method.options(usable)
    direction = natural(metric, method.solver, options, revalue=objective.revalue)
    return descent(objective, direction, optax.identity())


def _start(algorithm: Algorithm, parameters: Model, batch: Batch) -> Progress:
    state = algorithm.init(jax.random.key(0), parameters, batch)
    zero, kind = jnp.zeros((), jnp.int32), state.direction.level.dtype
    return Progress(state, zero, zero, zero, zero, History(*(jnp.zeros(_ROOM, kind),) * 5))


def _advance(algorithm: Algorithm, rules: Rules, at: Progress, batch: Batch, limit: Array) -> Progress:
    """Up to `limit` steps, fewer where a rule ends the fit."""

    def more(at: Progress) -> Array:
        return (at.status == RUNNING) & (at.made < limit)

    def step(at: Progress) -> Progress:
        key = jax.random.fold_in(jax.random.key(0), at.state.steps)
        state, info = algorithm.step(key, at.state, batch)
        taken = info.result == TAKEN
        evidence = info.evidence.evidence
        gained = taken & ~(evidence.ratio < rules.ftol)
        refused = jnp.where(taken, 0, at.refused + 1)
        slow = jnp.where(taken, jnp.where(gained, 0, at.slow + 1), at.slow)
        steepest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(info.gradient)]))
        row = History(info.value, evidence.damping, taken, steepest, evidence.result)
        put = lambda column, value: column.at[at.made].set(value.astype(column.dtype))  # noqa: E731
        history = jax.tree.map(put, at.history, row)
        status = _status(rules, info, steepest, refused, slow)
        kept = tree.select((status == TARGET) | (status == FLAT), at.state, state)
        return Progress(kept, refused, slow, status, at.made + 1, history)

    return jax.lax.while_loop(more, step, at._replace(made=jnp.zeros((), jnp.int32)))


def _status(rules: Rules, info: Info, steepest: Array, refused: Array, slow: Array) -> Array:
    """The first rule that holds."""
    found = jnp.asarray(RUNNING, jnp.int32)
    for code, holds in (
        (STUCK, refused >= _REFUSALS),
        (SLOW, slow >= _SLOW),
        (FLAT, steepest <= rules.gtol),
        (TARGET, info.value <= rules.target),
        (BROKEN, ~jnp.isfinite(info.value) | ~jnp.isfinite(steepest)),
    ):
        found = jnp.where(holds, code, found)
    return found


def _result(
    problem: Squares, residuals: Residuals, at: Progress, batch: Batch, rows: list[History], seconds: float
) -> LeastSquaresResult:
    parameters = at.state.model
    rho, found = jax.jit(lambda p, b: (problem.stacked(p, b), residuals(p, b)))(parameters, batch)
    history = History(*(np.concatenate(columns) for columns in zip(*rows, strict=True)))
    status, accepted, solved = int(at.status), int(history.accepted.sum()), int(history.result[-1])
    message = MESSAGES[status]
    if solved in (ILL_CONDITIONED, FAILED):
        message += f"; {SOLVED[solved]}"
    unsolved = solved == FAILED or (solved == ILL_CONDITIONED and not accepted)
    ended = status in (TARGET, FLAT, SLOW) or (status == STUCK and not unsolved)
    return LeastSquaresResult(
        parameters=parameters,
        loss=float(0.5 * rho @ rho),
        residuals=found,
        optimality=float(history.optimality[-1]),
        nit=len(history.loss),
        accepted=accepted,
        success=ended,
        status=status,
        message=message,
        seconds=seconds,
        history={"loss": history.loss, "damping": history.damping, "accepted": history.accepted > 0},
    )
