"""A look at residuals before a fit: are their rows independent, how far does each parameter move them?"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from natgrad.core import Batch, Model
from natgrad.layers.apart import made_up
from natgrad.metrics.residuals import (
    ResidualCurvature,
    Residuals,
    Squares,
    batch_parts,
    rows_made_apart,
    scales_of,
    squares,
)

_FEW = 8  # rows of each array that are tried where all do not fit in memory


class FirstLook(NamedTuple):
    """What one look at R before a fit says: whether rows are independent, and the squares of its columns."""

    by_row: bool
    columns: Float[Array, " parameter"]


def first_look(residuals: Residuals, weights: Any) -> Callable[[Model, Batch], FirstLook]:
    """Try R made row by row: it is the Jacobian if its product with an odd vector is the Jacobian's.

    That is tried at the parameters and beside them, where what couples rows may have been zero. Where R does
    not fit in memory some rows decide. Residuals need not bear a batch of one row; those that do not are not
    independent by row.
    """
    compared = jax.jit(lambda p, b: _compared(residuals, weights, p, b, unknown=True))
    problem = squares(residuals, weights)
    columns_of = column_squares(problem)
    beside = jax.jit(lambda p, columns, b: _beside(p, columns, problem.stacked(p, b)))

    def look(parameters: Model, batch: Batch) -> FirstLook:
        fits = problem.fits(parameters, batch)
        try:
            batch_parts(residuals, parameters, batch)
            seen = batch if fits else jax.tree.map(lambda leaf: leaf[:_FEW], batch)
            agrees, columns = compared(parameters, seen)
            agrees = agrees and compared(beside(parameters, columns, seen), seen)[0]
        except Exception:
            agrees, columns = False, jnp.zeros(())
        if agrees and fits:
            return FirstLook(True, columns)
        return FirstLook(bool(agrees), columns_of(parameters, batch))

    return look


def _beside(parameters: Model, columns: Array, rho: Array) -> Model:
    """Parameters moved by an odd vector, each of them so that residuals change by up to a tenth."""
    flat, unravel = ravel_pytree(parameters)
    length = jnp.linalg.norm(rho)
    per_length = jnp.where(columns > 0, jnp.sqrt(columns), 1) / jnp.where(length > 0, length, 1)
    odd = jnp.sin(1.0 + jnp.arange(flat.size, dtype=flat.dtype) ** 2)
    return unravel(flat + 0.1 * odd / per_length)


def seems_by_row(residuals: Residuals, parameters: Model, batch: Batch) -> bool:
    """The same for shapes alone, with made-up numbers, also while a program is traced."""
    shapes = jax.eval_shape(lambda *given: given, parameters, batch)
    compared = jax.jit(lambda p, b: _compared(residuals, 1.0, p, b, unknown=False)[0])
    with jax.ensure_compile_time_eval():
        try:
            batch_parts(residuals, *shapes)
            if not squares(residuals, 1.0).fits(*shapes):
                few = lambda leaf: jax.ShapeDtypeStruct((min(_FEW, len(leaf)), *leaf.shape[1:]), leaf.dtype)  # noqa: E731
                shapes = shapes[0], jax.tree.map(few, shapes[1])
            return bool(compared(*jax.tree.map(made_up, shapes)))
        except Exception:
            return False


def squares_by_rows(
    residuals: Residuals, weights: Any, by_row: bool | None
) -> Callable[[Model, Batch], Squares]:
    """The sum of squares for parameters and a batch; whether by row is tried once for their shapes."""
    problems = {apart: squares(residuals, weights, by_row=apart) for apart in (False, True)}
    tried: dict[Any, bool] = {}

    def problem_for(parameters: Model, batch: Batch) -> Squares:
        if by_row is not None:
            return problems[by_row]
        given = jax.tree.structure((parameters, batch)), *map(jnp.shape, jax.tree.leaves((parameters, batch)))
        if given not in tried:
            tried[given] = seems_by_row(residuals, parameters, batch)
        return problems[tried[given]]

    return problem_for


def column_squares(problem: Squares) -> Callable[[Model, Batch], Float[Array, " parameter"]]:
    """The diagonal of F in the order of `ravel_pytree`; where R does not fit in memory, its mean."""

    def columns(parameters: Model, batch: Batch) -> Float[Array, " parameter"]:
        if problem.fits(parameters, batch):
            return (problem.rows(parameters, batch) ** 2).sum(axis=0)
        size = sum(leaf.size for leaf in jax.tree.leaves(parameters))
        mean = ResidualCurvature(parameters, batch, problem).mean_diagonal(jax.random.key(0))
        return jnp.full(size, mean)

    return jax.jit(columns)


def _compared(
    residuals: Residuals, weights: Any, parameters: Model, batch: Batch, *, unknown: bool
) -> tuple[Array, Float[Array, " parameter"]]:
    """Whether R made row by row is the Jacobian, array by array; and the squares of its columns.

    Where the Jacobian itself is not finite nothing is known, and the answer is `unknown`.
    """
    flat, unravel = ravel_pytree(parameters)
    probe = jnp.cos(1.0 + jnp.arange(flat.size, dtype=flat.dtype) ** 2)
    whole = jax.jvp(lambda p: residuals(p, batch), (parameters,), (unravel(probe),))[1]
    close = jnp.sqrt(jnp.finfo(flat.dtype).eps)
    agrees, columns = [], jnp.zeros(flat.size, flat.dtype)
    leaves, scales = jax.tree.leaves(whole), scales_of(whole, weights)
    for leaf, scale, rows in zip(leaves, scales, rows_made_apart(residuals, parameters, batch), strict=True):
        error = jnp.linalg.norm(leaf.reshape(-1) - rows @ probe)
        same = error <= close * jnp.linalg.norm(leaf)  # false where only single rows are not finite
        agrees.append(jnp.where(jnp.isfinite(leaf).all(), same, unknown))
        columns += scale**2 * (rows * rows).sum(axis=0)
    return jnp.stack(agrees).all(), columns
