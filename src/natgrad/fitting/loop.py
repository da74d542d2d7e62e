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
from natgrad.core import TAKEN, Algorithm, Batch, Model, State
from natgrad.devices import keep_programs
from natgrad.errors import InputError, check_counts, check_function, number_of
from natgrad.fitting.ending import (
    RUNNING,
    SECONDS,
    SLOW,
    STEPS,
    WATCHED,
    Look,
    Rules,
    at_minimum,
    before_its_step,
    covariance_of,
    look_at,
    message_of,
    settled,
    status_of,
)
from natgrad.fitting.methods import Method, method_of
from natgrad.fitting.result import LeastSquaresResult
from natgrad.fitting.units import Units, mean_square, units_of
from natgrad.layers.task import check_parameters
from natgrad.metrics.first_look import FirstLook, column_squares, first_look
from natgrad.metrics.residuals import Residuals, Squares, half_square, residual_metric, squares
from natgrad.metrics.some_rows import half_square_by_some, metric_by_some
from natgrad.updates.descent import descent
from natgrad.updates.natural import natural

_ROOM = 256  # steps between two looks at the clock, at most
_PAUSE = 0.5  # seconds between two looks


class History(NamedTuple):
    """Numbers of every step since the last look: the loss before it, and what became of it."""

    loss: Any
    damping: Any
    accepted: Any
    result: Any


_EMPTY = History(*(np.zeros(0),) * 4)


class Progress(NamedTuple):
    """Where a fit is: the state of its method, and what the rules look at."""

    state: State
    refused: Int[Array, ""]
    slow: Int[Array, ""]
    status: Int[Array, ""]
    made: Int[Array, ""]
    history: History


class Fit(NamedTuple):
    """What does not change: the batch, the rules, the parameters' units; compiled steps and looks."""

    batch: Batch
    rules: Rules
    units: Units
    advance: Callable[[Progress, Batch, Array], Progress]
    look: Callable[[Model, Batch], Look]


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

    Parameters are measured by how far they move the residuals at the start: their units do not matter.

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
    known = _known(residuals, weights, by_row, parameters, batch)
    units = units_of(known.columns, parameters)
    scaled, problem = units.of(residuals), squares(units.of(residuals), weights, by_row=known.by_row)
    algorithm = _algorithm(problem, scaled, method_of(method), float(mean_square(known.columns, units)))
    fit = Fit(
        batch,
        rules,
        units,
        jax.jit(lambda at, batch, limit: _advance(algorithm, rules, units, at, batch, limit)),
        jax.jit(lambda q, batch: look_at(problem, units, q, batch)),
    )
    at, rows = _until_the_end(fit, _start(algorithm, units.scaled(parameters), batch), watch, began)
    return _result(fit, residuals, at, rows, time.perf_counter() - began)


def _until_the_end(
    fit: Fit, at: Progress, watch: Callable[[Model, int], Any] | None, began: float
) -> tuple[Progress, list[History]]:
    """Steps, many at a time, until a rule ends the fit; a slow fit that is not at a minimum continues."""
    rows: list[History] = []
    room, made = 4, 0
    while int(at.status) == RUNNING:
        left = fit.rules.steps - made
        if left <= 0 or (rows and time.perf_counter() - began >= fit.rules.seconds):
            return at._replace(status=jnp.asarray(STEPS if left <= 0 else SECONDS, jnp.int32)), rows
        looked = time.perf_counter()
        at = fit.advance(at, fit.batch, jnp.asarray(min(room, left, _ROOM), jnp.int32))
        rows.append(History(*(np.asarray(column)[: int(at.made)] for column in at.history)))
        made += int(at.made)
        each = (time.perf_counter() - looked) / max(int(at.made), 1)
        if int(at.status) == SLOW and not at_minimum(fit.look(at.state.model, fit.batch), rows[0].loss[0]):
            at = at._replace(status=jnp.asarray(RUNNING, jnp.int32), slow=jnp.zeros_like(at.slow))
        if watch is not None and watch(fit.units.plain(at.state.model), made):
            at = at._replace(status=jnp.where(at.status == RUNNING, WATCHED, at.status))
        room = room * 2 if len(rows) == 1 else max(1, min(_ROOM, int(_PAUSE / each)))
    return at, rows


def _result(
    fit: Fit, residuals: Residuals, at: Progress, rows: list[History], seconds: float
) -> LeastSquaresResult:
    """Everything at the parameters that are returned."""
    seen, history, found = fit.look(at.state.model, fit.batch), _joined(rows), fit.units.plain(at.state.model)
    solved = int(history.result[-1]) if len(history.result) else 0
    first = float(history.loss[0]) if len(history.loss) else float(seen.loss)
    status = settled(int(at.status), seen, fit.rules, first, solved)
    return LeastSquaresResult(
        parameters=found,
        loss=float(seen.loss),
        residuals=jax.jit(residuals)(found, fit.batch),
        optimality=float(seen.optimality),
        cosine=float(seen.cosine),
        covariance=covariance_of(seen, fit.units),
        nit=len(history.loss),
        accepted=int(history.accepted.sum()),
        success=status > 0,
        status=status,
        message=message_of(status, solved),
        seconds=seconds,
        history={"loss": history.loss, "damping": history.damping, "accepted": history.accepted > 0},
    )


def _joined(rows: list[History]) -> History:
    """One history of all looks; without one, an empty one."""
    return History(*(np.concatenate(columns) for columns in zip(*rows, strict=True))) if rows else _EMPTY


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


def _known(
    residuals: Residuals, weights: Any, by_row: bool | None, parameters: Model, batch: Batch
) -> FirstLook:
    """Whether rows are independent, and the squares of R's columns."""
    if by_row is None:
        return first_look(residuals, weights, parameters, batch)
    problem = squares(residuals, weights, by_row=by_row)
    return FirstLook(by_row, column_squares(problem, parameters, batch))


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
    return Progress(state, zero, zero, zero + RUNNING, zero, History(*(jnp.zeros(_ROOM, kind),) * 4))


def _advance(
    algorithm: Algorithm, rules: Rules, units: Units, at: Progress, batch: Batch, limit: Array
) -> Progress:
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
        slopes = jax.tree.leaves(units.scaled(info.gradient))
        steepest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in slopes]))
        row = History(info.value, evidence.damping, taken, evidence.result)
        put = lambda column, value: column.at[at.made].set(value.astype(column.dtype))  # noqa: E731
        history = jax.tree.map(put, at.history, row)
        status = status_of(rules, info, steepest, refused, slow)
        ended = before_its_step(status)
        kept = tree.select(ended, at.state, state)
        return Progress(kept, refused, slow, status, jnp.where(ended, at.made, at.made + 1), history)

    return jax.lax.while_loop(more, step, at._replace(made=jnp.zeros((), jnp.int32)))
