"""Exact solves from the rows of a factor, F = R^T R, for problems with more rows than parameters.

With a triangle T such that T^T T = damping I + R^T R, the solution is x = T^{-1} T^{-T} g. Where T comes
from the orthogonal decomposition of R itself, with sqrt(damping) I below it, the condition of R is never
squared [bjorck1987]; by Cholesky it is, and T costs a fraction. Either way one refinement by the rows brings
back the digits that the two triangular solves lose.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from natgrad.core import Model, Operator, Solution, Solver
from natgrad.errors import InputError
from natgrad.solvers.units import known_after
from natgrad.solvers.whole import exactly, solution_of, spread

_Rows = Float[Array, "sample parameter"]
_Triangle = Float[Array, "parameter parameter"]


class RowFactor(NamedTuple):
    """The rows, and the upper triangle T with T^T T = damping I + R^T R."""

    operator: Any
    damping: Float[Array, ""]
    rows: _Rows
    upper: _Triangle


def qr_solve() -> Solver:
    """Orthogonal decomposition of the rows: the condition is not squared; 2 rows parameters^2 operations."""

    def triangle(rows: _Rows, damping: Array) -> _Triangle:
        below = jnp.sqrt(damping) * jnp.eye(rows.shape[1], dtype=rows.dtype)
        return jnp.linalg.qr(jnp.concatenate([rows, below]), mode="r")

    return _by_rows(triangle, lambda condition: condition)


def cholesky_solve() -> Solver:
    """Cholesky's factor of damping I + R^T R: fast, but the condition of R is squared."""

    def triangle(rows: _Rows, damping: Array) -> _Triangle:
        damped = rows.T @ rows + damping * jnp.eye(rows.shape[1], dtype=rows.dtype)
        return jax.scipy.linalg.cholesky(damped)

    return _by_rows(triangle, lambda condition: condition**2)


def _by_rows(triangle: Callable[[_Rows, Array], _Triangle], worst: Callable[[Array], Array]) -> Solver:
    """The solver of a triangle; `worst` is the condition that rounding meets, from that of the triangle."""

    def prepare(operator: Operator, damping: Array, after: Any) -> tuple[RowFactor, Any]:
        make = operator.bind().rows
        if make is None:
            raise InputError(
                "a solve by rows needs a metric with a factor, and this one has none; use dense or truncated"
            )
        rows = make()
        upper = triangle(rows, damping + jnp.asarray(after, rows.dtype))
        return RowFactor(operator, damping, rows, upper), known_after(upper)

    def solve(factor: RowFactor, gradient: Model, guess: Model | None) -> Solution:
        del guess
        right, unravel = ravel_pytree(gradient)
        rows, upper, damping = factor.rows, factor.upper, factor.damping
        once = lambda b: solve_triangular(upper, solve_triangular(upper, b, trans=1))  # noqa: E731
        left_over = lambda x: right - rows.T @ (rows @ x) - damping * x  # noqa: E731
        found = once(right)
        found = found + once(left_over(found))
        condition = worst(spread(jnp.diagonal(upper)))
        return solution_of(exactly(unravel(found), unravel(left_over(found)), condition), gradient, damping)

    return Solver(prepare, solve)
