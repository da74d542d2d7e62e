"""When a fit by least squares ends, and whether it has ended at a minimum.

That the loss falls slowly says little: a strong damping makes steps slow anywhere. At a minimum the residuals
are at right angles to the columns of R, in whatever units parameters are measured [bates1981]. So a slow or
stuck fit has succeeded only where

    max_j |R_j^T rho| / (|R_j| |rho|) <= 0.001,     or the loss is rounding beside the first one.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from natgrad.core import Batch, Info, Model
from natgrad.fitting.units import ParameterUnits
from natgrad.metrics.residuals import ResidualCurvature, Squares
from natgrad.solvers.results import FAILED, ILL_CONDITIONED, SOLVED

REFUSALS = 60  # steps refused one after the other: nothing helps any more
SLOWEST = 10  # steps taken one after the other that gain little
RIGHT = 1e-3  # the largest cosine at a minimum [bates1981]
_SHOWN = 200  # parameters of a covariance, at most

TARGET, FLAT, SLOW, STUCK, RUNNING = 1, 2, 3, 4, 100
STEPS, SECONDS, WATCHED, BROKEN, AWAY = 0, -1, -2, -3, -4
MESSAGES = {
    TARGET: "the loss is at or below `target`",
    FLAT: "the gradient is at or below `gtol`",
    SLOW: f"{SLOWEST} steps lowered the loss by less than `ftol` of itself each",
    STUCK: "no step lowers the loss any further in this precision",
    STEPS: "the limit of steps was reached",
    SECONDS: "the limit of seconds was reached",
    WATCHED: "`watch` ended the fit",
    BROKEN: "the loss or its gradient is not finite; begin elsewhere",
    AWAY: "no step lowers the loss any further in this precision, but it is not at a minimum; begin "
    "elsewhere, or use float64",
}


class Rules(NamedTuple):
    """When to end: loss, largest entry of the gradient, relative gain of a step, steps, seconds."""

    target: float
    gtol: float
    ftol: float
    steps: int
    seconds: float


class Look(NamedTuple):
    """A look at the parameters: loss, largest entry of the gradient, largest cosine of a column, R."""

    loss: Any
    optimality: Any
    cosine: Any
    rows: Any


def look_at(problem: Squares, units: ParameterUnits, scaled: Model, batch: Batch) -> Look:
    """A look at scaled parameters; where R does not fit in memory, the cosine is that of R g."""
    rho, sizes = problem.stacked(scaled, batch), ravel_pytree(units.sizes)[0]
    length, tiny = jnp.linalg.norm(rho), jnp.finfo(rho.dtype).tiny
    if problem.fits(scaled, batch):
        rows = problem.rows(scaled, batch)
        gradient, norms = rows.T @ rho, jnp.linalg.norm(rows, axis=0)
        cosine = jnp.max(jnp.abs(gradient) / jnp.maximum(norms * length, tiny))
    else:
        rows = jnp.zeros((0, sizes.size), rho.dtype)
        product = ResidualCurvature(scaled, batch, problem).bind()
        assert product.pull is not None
        gradient = ravel_pytree(product.pull(rho))[0]
        seen = jnp.linalg.norm(product.push(product.pull(rho)))  # type: ignore[misc]
        cosine = jnp.vdot(gradient, gradient) / jnp.maximum(seen * length, tiny)
    return Look(0.5 * length**2, jnp.max(jnp.abs(sizes * gradient)), cosine, rows)


def status_of(rules: Rules, info: Info, steepest: Array, refused: Array, slow: Array) -> Array:
    """The first rule that holds before or after a step."""
    found = jnp.asarray(RUNNING, jnp.int32)
    for code, holds in (
        (STUCK, refused >= REFUSALS),
        (SLOW, slow >= SLOWEST),
        (FLAT, steepest <= rules.gtol),
        (TARGET, info.value <= rules.target),
        (BROKEN, ~jnp.isfinite(info.value) | ~jnp.isfinite(steepest)),
    ):
        found = jnp.where(holds, code, found)
    return found


def before_its_step(status: Array) -> Array:
    """Whether a rule holds for the parameters before the step, which is then not taken."""
    return (status == TARGET) | (status == FLAT) | (status == BROKEN)


def at_minimum(look: Look, first: float) -> bool:
    """Whether residuals are at right angles to R's columns, or gone."""
    gone = np.finfo(np.asarray(look.loss).dtype).eps ** 1.5 * first
    return bool(look.cosine <= RIGHT) or bool(look.loss <= gone)


def final_status(status: int, look: Look, rules: Rules, first: float, solved: int) -> int:
    """The final status, at the parameters that are returned."""
    if status in (STEPS, SECONDS):
        return TARGET if look.loss <= rules.target else FLAT if look.optimality <= rules.gtol else status
    unsolved = solved == FAILED or not at_minimum(look, first)
    return AWAY if status == STUCK and unsolved else status


def message_of(status: int, solved: int) -> str:
    """Why a fit ended, and what was wrong with its last solve."""
    return MESSAGES[status] + (f"; {SOLVED[solved]}" if solved in (ILL_CONDITIONED, FAILED) else "")


def covariance_of(
    look: Look, units: ParameterUnits, number: int
) -> Float[np.ndarray, "parameter parameter"] | None:
    """(2 loss / (residuals - parameters)) F^{-1}; None where it is large, or F has no inverse.

    `number` counts the residuals that have a weight.
    """
    if look.rows.shape[1] > _SHOWN:
        return None
    rows, sizes = np.asarray(look.rows, np.float64), np.asarray(ravel_pytree(units.sizes)[0])
    size = rows.shape[1]
    if min(number, len(rows)) <= size or not np.isfinite(rows).all():
        return None
    _, singular, axes = np.linalg.svd(rows, full_matrices=False)
    if singular[-1] <= singular[0] * len(rows) * np.finfo(np.asarray(look.rows).dtype).eps:
        return None
    half = axes / singular[:, None] / sizes
    return 2 * float(look.loss) / (number - size) * half.T @ half
