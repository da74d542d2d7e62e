"""Solve (damping I + F) x = g for all parameters at once; dense and in sample space, for small problems.

A solver is one function `(system, gradient, guess) -> Solution` on trees of any structure. What can
go wrong inside jit is a result code. Iterative solvers are in `truncated`, `minres` and `subspace`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from natgrad import tree
from natgrad.core import Model
from natgrad.errors import InputError
from natgrad.metrics.curvature import Operator, dense

CONVERGED, LIMIT, INDEFINITE, SINGULAR, FAILED = range(5)
SOLVED = {
    CONVERGED: "the stopping rule was met",
    LIMIT: "the limit of iterations came before the stopping rule",
    INDEFINITE: "a direction of negative curvature was met and the iterate before it returned; "
    "raise the damping or use a metric that is positive semi-definite",
    SINGULAR: "the system is singular, and its least-squares solution of minimum length was returned",
    FAILED: "the solution is not finite; raise the damping",
}


class System(NamedTuple):
    """The left-hand side: an operator, its damping, and a preconditioner (an approximate inverse) if any."""

    operator: Operator
    damping: Float[Array, ""]
    precondition: Callable[[Model], Model] | None = None

    def mv(self, vector: Model) -> Model:
        """(damping I + F) v."""
        return tree.axpy(self.damping, vector, self.operator.mv(vector))


class Solution(NamedTuple):
    """The solution, what it leaves of the right-hand side, and how it came about.

    `iterates`, where kept, are [slot, ...] per leaf, of which the first `kept` are filled.
    """

    value: Model
    residual: Model
    iterations: Int[Array, ""]
    result: Int[Array, ""]
    iterates: Any = None
    kept: Int[Array, ""] | int = 0


Solve = Callable[[System, Model, Model | None], Solution]


def dense_solve() -> Solve:
    """Make the matrix and eliminate: exact, also for indefinite operators; parameters^2 numbers."""

    def solve(system: System, gradient: Model, guess: Model | None) -> Solution:
        del guess
        right, unravel = ravel_pytree(gradient)
        operator = system.operator
        if operator.rows is not None and operator.samples is not None and operator.samples < right.size:
            rows = operator.rows()
            matrix = rows.T @ rows
        else:
            matrix = dense(operator, gradient)
        left = matrix + system.damping * jnp.eye(right.size, dtype=right.dtype)
        found = jnp.linalg.solve(left, right)
        return exact(unravel(found), unravel(right - left @ found))

    return solve


def dual_solve() -> Solve:
    """Solve in sample space: with F = R^T R, x = (g - R^T (damping I + R R^T)^{-1} R g) / damping.

    The difference cancels where the damping is small; one refinement brings the lost digits back.
    """

    def solve(system: System, gradient: Model, guess: Model | None) -> Solution:
        del guess
        if system.operator.rows is None:
            raise InputError(
                "the dual solver needs a metric with a factor, and this one has none; use dense or truncated"
            )
        rows, damping = system.operator.rows(), system.damping
        right, unravel = ravel_pytree(gradient)
        inner = rows @ rows.T + damping * jnp.eye(rows.shape[0], dtype=right.dtype)
        factor = jax.scipy.linalg.lu_factor(inner)

        def once(b: Array) -> Array:
            return (b - rows.T @ jax.scipy.linalg.lu_solve(factor, rows @ b)) / damping

        def left_over(x: Array) -> Array:
            return right - rows.T @ (rows @ x) - damping * x

        found = once(right)
        found = found + once(left_over(found))
        return exact(unravel(found), unravel(left_over(found)))

    return solve


def automatic(iterative: Solve, *, side: int = 512, memory_mb: float = 64.0) -> Solve:
    """Exact in the smaller of parameter space and sample space where it is small, otherwise iterative.

    Args:
        iterative: for everything that is too large.
        side: the largest matrix that is factored.
        memory_mb: the largest factor R that is made.
    """

    def solve(system: System, gradient: Model, guess: Model | None) -> Solution:
        return choose(system.operator, gradient)(system, gradient, guess)

    def choose(operator: Operator, like: Model) -> Solve:
        leaves = jax.tree.leaves(like)
        parameters, bytes_each = sum(leaf.size for leaf in leaves), leaves[0].dtype.itemsize
        samples = operator.samples if operator.rows is not None else None
        if samples is None:
            return dense_solve() if parameters <= side // 8 else iterative
        if min(samples, parameters) > side or samples * parameters * bytes_each > memory_mb * 2**20:
            return iterative
        return dual_solve() if samples < parameters else dense_solve()

    return solve


def exact(value: Model, residual: Model) -> Solution:
    """The solution of a method without iterations."""
    result = jnp.where(jnp.isfinite(tree.vdot(value, value)), CONVERGED, FAILED)
    return Solution(value, residual, jnp.zeros((), jnp.int32), result)
