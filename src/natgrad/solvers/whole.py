"""Solve (damping I + F) x = g for all parameters at once; dense and in sample space.

Solvers take operators on trees of any structure. What can go wrong inside jit is a result code. Iterative
solvers, in `truncated` and `minres`, are functions of a `System`; `iterative` makes solvers of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from natgrad import tree
from natgrad.core import Model, Operator, Product, Solution, Solver
from natgrad.devices import placed
from natgrad.errors import InputError
from natgrad.metrics.probing import dense
from natgrad.solvers.results import CONVERGED, FAILED, ILL_CONDITIONED
from natgrad.solvers.units import known_after

UNSURE = 1e-2  # the share of a solution that rounding may take before the solve says so


class DampedOperator(NamedTuple):
    """An operator and its damping: all that an iterative solver keeps of a metric."""

    operator: Any
    damping: Float[Array, ""]


class System(NamedTuple):
    """The left-hand side for one solve: products with the operator, its damping."""

    product: Product
    damping: Float[Array, ""]

    def mv(self, vector: Model) -> Model:
        """(damping I + F) v."""
        return tree.axpy(self.damping, vector, self.product.mv(vector))


class Found(NamedTuple):
    """What an iteration found, and what it leaves of the right-hand side; the rest as in `Solution`."""

    value: Model
    residual: Model
    iterations: Int[Array, ""]
    result: Int[Array, ""]
    iterates: Any = None
    kept: Int[Array, ""] | int = 0


Iteration = Callable[[System, Model, Model | None], Found]


def iterative(iterate: Iteration) -> Solver:
    """A solver that prepares nothing and iterates for every gradient."""

    def solve(factor: DampedOperator, gradient: Model, guess: Model | None) -> Solution:
        system = System(factor.operator.bind(), factor.damping)
        return solution_of(iterate(system, gradient, guess), gradient, factor.damping)

    return Solver(lambda operator, damping, after: (DampedOperator(operator, damping), after), solve)


def solution_of(found: Found, gradient: Model, damping: Array) -> Solution:
    """With its curvature: x^T F x = x^T (g - residual) - damping x^T x needs no further product."""
    x = found.value
    curvature = tree.vdot(gradient, x) - tree.vdot(x, found.residual) - damping * tree.vdot(x, x)
    left = tree.norm(found.residual) / jnp.maximum(tree.norm(gradient), 1e-30)
    counts = (found.iterations.astype(jnp.int32), found.result.astype(jnp.int32))
    return Solution(x, curvature, *counts, left, found.iterates, found.kept)


class DenseFactor(NamedTuple):
    """The matrix of an operator, and its damped sum's factors."""

    operator: Any
    damping: Float[Array, ""]
    matrix: Float[Array, "parameter parameter"]
    lower_upper: Any


def dense_solve() -> Solver:
    """Make the matrix and eliminate: exact, also for indefinite operators; parameters^2 numbers."""

    def prepare(operator: Operator, damping: Array, after: Any) -> tuple[DenseFactor, Any]:
        matrix = _matrix(operator)
        damped = matrix + (damping + after) * jnp.eye(len(matrix), dtype=matrix.dtype)
        factors = jax.scipy.linalg.lu_factor(damped)
        return DenseFactor(operator, damping, matrix, factors), known_after(factors)

    def solve(factor: DenseFactor, gradient: Model, guess: Model | None) -> Solution:
        del guess
        right, unravel = ravel_pytree(gradient)
        found = jax.scipy.linalg.lu_solve(factor.lower_upper, right)
        left = right - factor.matrix @ found - factor.damping * found
        done = exactly(unravel(found), unravel(left), _condition(factor.lower_upper))
        return solution_of(done, gradient, factor.damping)

    return Solver(prepare, solve)


class GramFactor(NamedTuple):
    """The factors of damping I + R R^T."""

    operator: Any
    damping: Float[Array, ""]
    lower_upper: Any


def dual_solve(*, refine: bool = True) -> Solver:
    """Solve in sample space: with F = R^T R, x = (g - R^T s) / damping, s = (damping I + R R^T)^{-1} R g.

    The difference cancels where the damping is small; one refinement brings the lost digits back, at three
    times the products. Where the damping is so small that the residual is still larger than g, the solve has
    failed. Without refinement the residual is not known; the curvature is, since R x = s.
    """

    def prepare(operator: Operator, damping: Array, after: Any) -> tuple[GramFactor, Any]:
        product = operator.bind()
        if product.gram is None:
            raise InputError(
                "the dual solver needs a metric with a factor, and this one has none; use dense or truncated"
            )
        gram = product.gram()
        factors = jax.scipy.linalg.lu_factor(gram + (damping + after) * jnp.eye(len(gram), dtype=gram.dtype))
        return GramFactor(operator, damping, factors), known_after(factors)

    def solve(factor: GramFactor, gradient: Model, guess: Model | None) -> Solution:
        del guess
        product, damping = factor.operator.bind(), factor.damping

        def once(b: Model) -> tuple[Array, Model]:
            s = jax.scipy.linalg.lu_solve(factor.lower_upper, product.push(b))
            return s, tree.scale(1 / damping, tree.subtract(b, product.pull(s)))

        def left_over(x: Model) -> Model:
            return tree.subtract(gradient, tree.axpy(damping, x, product.pull(product.push(x))))

        s, found = once(gradient)
        condition = _condition(factor.lower_upper)
        if not refine:
            done = exactly(found, gradient, condition)
            return Solution(found, s @ s, done.iterations, done.result, jnp.full_like(damping, jnp.nan))
        found = tree.add(found, once(left_over(found))[1])
        left = left_over(found)
        done = exactly(found, left, condition)
        wrong = tree.norm(left) > tree.norm(gradient)  # the difference has lost all its digits
        return solution_of(done._replace(result=jnp.where(wrong, FAILED, done.result)), gradient, damping)

    return Solver(prepare, solve)


def spread(pivots: Float[Array, " parameter"]) -> Float[Array, ""]:
    """The largest of a triangle's pivots over the smallest: its condition is about that, or worse."""
    sizes = jnp.abs(pivots)
    return sizes.max() / sizes.min()


def unsure(condition: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether rounding may take more than a hundredth of a solution."""
    return ~(condition * jnp.finfo(condition.dtype).eps < UNSURE)


def exactly(value: Model, residual: Model, condition: Float[Array, ""]) -> Found:
    """What a method without iterations found, by a matrix of that condition."""
    good = jnp.where(unsure(condition), ILL_CONDITIONED, CONVERGED)
    result = jnp.where(jnp.isfinite(tree.vdot(value, value)), good, FAILED)
    return Found(value, residual, jnp.zeros((), jnp.int32), result)


def _condition(lower_upper: Any) -> Float[Array, ""]:
    return spread(jnp.diagonal(lower_upper[0]))


def _matrix(operator: Any) -> Float[Array, "parameter parameter"]:
    """The matrix of an operator, from its factor's rows where it has any: cheaper than products."""
    make = operator.bind().rows
    if make is None:
        return dense(operator)
    rows = placed(make(), "rows", None)  # summed up over a mesh's devices, not gathered
    return placed(rows.T @ rows, None, None)
