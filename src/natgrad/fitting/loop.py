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
from jaxtyping import Array

from natgrad.core import Batch, Model
from natgrad.devices import keep_programs
from natgrad.errors import InputError, check_counts, check_function, clipped, number_of
from natgrad.fitting.ending import (
    RUNNING,
    SECONDS,
    SLOW,
    STEPS,
    WATCHED,
    Look,
    Rules,
    at_minimum,
    covariance_of,
    final_status,
    message_of,
)
from natgrad.fitting.methods import Method, method_of
from natgrad.fitting.programs import LeastSquaresProblem, Programs, programs_of
from natgrad.fitting.result import LeastSquaresResult
from natgrad.fitting.steps import EMPTY, ROOM, History, Progress
from natgrad.fitting.units import ParameterUnits, parameter_units
from natgrad.layers.task import check_parameters
from natgrad.metrics.residuals import Residuals, weighed

_PAUSE = 0.5  # seconds between two looks


class Fit(NamedTuple):
    """What does not change: batch, rules, the parameters' units, the squares of R's columns, programs."""

    batch: Batch
    rules: Rules
    units: ParameterUnits
    columns: Array
    programs: Programs

    def start(self, parameters: Model) -> Progress:
        """Where the fit starts."""
        return self.programs.start(self.units, self.columns, parameters, self.batch)

    def advance(self, at: Progress, steps: int) -> Progress:
        """So many steps on, or fewer."""
        limit = jnp.asarray(steps, jnp.int32)
        return self.programs.advance(self.units, self.columns, at, self.batch, self.rules, limit)

    def look(self, at: Progress) -> Look:
        """A look at the parameters there."""
        return self.programs.look(self.units, at.state.model, self.batch)


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
    if watch is not None:
        check_function(watch)
    check_parameters(parameters)
    parameters = jax.tree.map(jnp.asarray, parameters)
    batch = _in_precision_of(parameters, batch)
    chosen = method_of(method)
    if chosen.rows is not None and rules.gtol > 0:
        raise InputError(
            "gtol looks at the gradient of all rows, got a method that sees some of them in a step; "
            "leave gtol out, or give target or seconds"
        )
    if chosen.rows is not None:
        rules = rules._replace(gtol=-1.0)  # some rows may be zero while others are not
    kept = programs_of(LeastSquaresProblem(residuals, weights, chosen, by_row), parameters, batch)
    known = kept.first_look(parameters, batch)
    units = parameter_units(known.columns, parameters)
    fit = Fit(batch, rules, units, known.columns, kept.programs(known.by_row))
    at, rows = _until_the_end(fit, fit.start(parameters), watch, began)
    return _result(fit, weights, at, rows, time.perf_counter() - began)


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
        at = fit.advance(at, min(room, left, ROOM))
        rows.append(History(*(np.asarray(column)[: int(at.made)] for column in at.history)))
        made += int(at.made)
        each = (time.perf_counter() - looked) / max(int(at.made), 1)
        if int(at.status) == SLOW and not at_minimum(fit.look(at), rows[0].loss[0]):
            at = at._replace(status=jnp.asarray(RUNNING, jnp.int32), slow=jnp.zeros_like(at.slow))
        if watch is not None and watch(fit.units.plain(at.state.model), made):
            at = at._replace(status=jnp.where(at.status == RUNNING, WATCHED, at.status))
        room = max(1, min(ROOM, int(_PAUSE / each)))
    return at, rows


def _result(fit: Fit, weights: Any, at: Progress, rows: list[History], seconds: float) -> LeastSquaresResult:
    """Everything at the parameters that are returned."""
    seen, history, found = fit.look(at), _joined(rows), fit.units.plain(at.state.model)
    solved = int(history.result[-1]) if len(history.result) else 0
    first = float(history.loss[0]) if len(history.loss) else float(seen.loss)
    residuals = fit.programs.residuals(found, fit.batch)
    status = final_status(int(at.status), seen, fit.rules, first, solved)
    return LeastSquaresResult(
        parameters=found,
        loss=float(seen.loss),
        residuals=residuals,
        optimality=float(seen.optimality),
        cosine=float(seen.cosine),
        covariance=covariance_of(seen, fit.units, weighed(residuals, weights)),
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
    return History(*(np.concatenate(columns) for columns in zip(*rows, strict=True))) if rows else EMPTY


def _in_precision_of(parameters: Model, batch: Batch) -> Batch:
    """The batch as arrays, whose floating-point numbers are of the kind that parameters are."""
    kind = jnp.result_type(*jax.tree.leaves(parameters))

    def cast(leaf: Any) -> Array:
        try:
            found = jnp.asarray(leaf)
        except TypeError:
            raise InputError(
                f"expected arrays in the batch, got {clipped(repr(leaf), 80)}; hand over numbers only"
            ) from None
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
        if isinstance(value, str) or not number_of(value) >= 0:
            raise InputError(f"{name} must be zero or positive, got {value!r}; leave it out for the default")
    return Rules(steps=steps, **(known | {name: number_of(value) for name, value in limits.items()}))
