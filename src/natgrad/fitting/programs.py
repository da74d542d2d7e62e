"""Compiled programs of the last few fits, so that another fit of the same residuals need not compile.

A function may compute something else than the last time, where it reads numbers from outside. So residuals
are traced for every fit, and programs are used again only where the trace is the same, all numbers included.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from natgrad.core import Algorithm, Batch, Model
from natgrad.fitting.ending import Look, Rules, look_at
from natgrad.fitting.methods import Method
from natgrad.fitting.steps import Progress, further_progress, initial_progress
from natgrad.fitting.units import ParameterUnits, mean_square
from natgrad.metrics.first_look import FirstLook, column_squares, first_look
from natgrad.metrics.residuals import Residuals, check_forward, half_square, residual_metric, squares
from natgrad.metrics.some_rows import half_square_by_some, metric_by_some
from natgrad.updates.descent import descent
from natgrad.updates.natural import natural

_KEPT = 8  # fits whose programs are kept


class Programs(NamedTuple):
    """The compiled functions of a fit, whose residuals are measured in units that are given.

    Attributes:
        start: (units, columns, parameters, batch): the progress at the start.
        advance: (units, columns, progress, batch, rules, limit): after some more steps.
        look: (units, scaled parameters, batch).
        residuals: (parameters, batch).
    """

    start: Callable[[ParameterUnits, Array, Model, Batch], Progress]
    advance: Callable[[ParameterUnits, Array, Progress, Batch, Rules, Array], Progress]
    look: Callable[[ParameterUnits, Model, Batch], Look]
    residuals: Residuals


class LeastSquaresProblem(NamedTuple):
    """Residuals with their weights, and how they are made small."""

    residuals: Residuals
    weights: Any
    method: Method
    by_row: bool | None


class KeptPrograms:
    """The first look at a problem, and its programs by whether rows are apart.

    What is not traced yet is traced with the residuals of the last fit that was the same.
    """

    def __init__(self, problem: LeastSquaresProblem, key: tuple[Any, ...]):
        """`key` says what the problem is."""
        self.problem, self.key = problem, key
        own = problem._replace(residuals=lambda p, b: self.problem.residuals(p, b))
        self.first_look = _first_look(own)
        self.programs: Callable[[bool], Programs] = cache(lambda by_row: _programs(own, by_row))


_kept: deque[KeptPrograms] = deque(maxlen=_KEPT)
_alone = Lock()


def programs_of(problem: LeastSquaresProblem, parameters: Model, batch: Batch) -> KeptPrograms:
    """Those of an earlier fit, if all is the same, or new ones; the last used are kept."""
    key = _key(problem, parameters, batch)
    with _alone:
        found = next((kept for kept in _kept if kept.key == key), None)
        if found is None:
            check_forward(problem.residuals, parameters, batch)
            found = KeptPrograms(problem, key)
        else:
            _kept.remove(found)
            found.problem = problem
        _kept.append(found)
    return found


def _first_look(problem: LeastSquaresProblem) -> Callable[[Model, Batch], FirstLook]:
    """Whether rows are independent, and the squares of R's columns."""
    if problem.by_row is None:
        return first_look(problem.residuals, problem.weights)
    sums = squares(problem.residuals, problem.weights, by_row=problem.by_row)
    columns = column_squares(sums)
    return lambda parameters, batch: FirstLook(sums.by_row, columns(parameters, batch))


def _programs(problem: LeastSquaresProblem, by_row: bool) -> Programs:
    def of(units: ParameterUnits, columns: Array) -> Algorithm:
        return _algorithm(problem, units, columns, by_row)

    def sums(units: ParameterUnits) -> Any:
        return squares(units.of(problem.residuals), problem.weights, by_row=by_row)

    return Programs(
        jax.jit(
            lambda units, columns, p, batch: initial_progress(of(units, columns), units.scaled(p), batch)
        ),
        jax.jit(
            lambda units, columns, at, batch, rules, limit: further_progress(
                of(units, columns), rules, units, at, batch, limit
            )
        ),
        jax.jit(lambda units, q, batch: look_at(sums(units), units, q, batch)),
        jax.jit(problem.residuals),
    )


def _algorithm(given: LeastSquaresProblem, units: ParameterUnits, columns: Array, by_row: bool) -> Algorithm:
    """The method with a damping on the scale of the metric at the start."""
    residuals, method = units.of(given.residuals), given.method
    problem = squares(residuals, given.weights, by_row=by_row)
    if method.rows is None:
        objective, metric = half_square(problem), residual_metric(problem)
    else:
        objective, metric = half_square_by_some(problem, residuals, method.rows), metric_by_some(problem)
    scale = mean_square(columns, units)
    options = method.options(jnp.where((scale > 0) & jnp.isfinite(scale), scale, 1))
    direction = natural(metric, method.solver, options, revalue=objective.revalue)
    return descent(objective, direction, optax.identity())


class _Same:
    """Equal to what holds the same object."""

    def __init__(self, held: Any):
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.held is other.held

    __hash__ = None  # type: ignore[assignment]


def _key(problem: LeastSquaresProblem, parameters: Model, batch: Batch) -> tuple[Any, ...]:
    """What a problem computes: the text of loss, residuals and gradient, with all numbers from outside.

    Functions that are made by one line of a program have one code. Calls of Python from inside of a program
    are not in its text: there the function itself must be the same.
    """
    loss = half_square(squares(problem.residuals, problem.weights)).revalue
    assert loss is not None

    def everything(p: Model, b: Batch) -> Any:
        return loss(p, b), problem.residuals(p, b)

    program = jax.jit(jax.value_and_grad(everything, has_aux=True)).lower(parameters, batch)
    text, structure = program.as_text(), jax.tree.structure
    code = getattr(problem.residuals, "__code__", None)
    outside = code is None or "callback" in text
    return (
        hashlib.sha256(text.encode()).digest(),
        structure((parameters, batch, problem.weights)),
        structure(program.out_info),
        _Same(problem.residuals) if outside else code,
        _Same(problem.method),
        problem.by_row,
    )
