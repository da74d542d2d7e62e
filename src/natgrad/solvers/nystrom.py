"""Conjugate gradients with a randomized Nystrom preconditioner, for spectra that decay [frangella2023].

A sketch of F from its products with a few random vectors gives U diag(lambda) U^T, near F where it is large;

    P^{-1} = (lambda_k + damping) U diag(1 / (lambda + damping)) U^T + (I - U U^T)

makes the large eigenvalues those of the rest. The sketch is made once per metric, and its products cost as
many iterations as it has vectors; it pays where eigenvalues fall fast, and where a metric is kept.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from natgrad.core import Model, Operator, Solution, Solver
from natgrad.errors import InputError
from natgrad.solvers.truncated import _Stop, conjugate_iteration
from natgrad.solvers.units import known_after
from natgrad.solvers.whole import System, solution_of

_AT_ONCE = 10  # products of a sketch that are in memory together


class Sketch(NamedTuple):
    """An operator, its damping, and the eigenvectors and eigenvalues of its sketch, the largest first."""

    operator: Any
    damping: Float[Array, ""]
    vectors: Float[Array, "parameter rank"]
    values: Float[Array, " rank"]


def nystrom_gradient(
    rank: int = 20, iterations: int = 100, *, stop: _Stop | None = None, seed: int = 0
) -> Solver:
    """Conjugate gradients, preconditioned by a sketch of that rank.

    Args:
        rank: the number of random vectors, at most that of parameters.
        iterations: the most that are made.
        stop: the stopping rule; `small_residual()` by default.
        seed: of the random vectors, the same for every metric.
    """
    if rank < 1:
        raise InputError(f"a sketch needs at least one vector, got {rank}")
    iterate = conjugate_iteration(iterations, stop)

    def prepare(operator: Operator, damping: Array, after: Any) -> tuple[Sketch, Any]:
        vectors, values = sketch(operator, rank, jnp.asarray(after, damping.dtype), seed)
        return Sketch(operator, damping, vectors, values), known_after((vectors, values))

    def solve(factor: Sketch, gradient: Model, guess: Model | None) -> Solution:
        ratio = _ratio(factor.values, factor.damping)

        def correct(residual: Model) -> Model:
            flat, unravel = ravel_pytree(residual)
            inside = factor.vectors.T @ flat
            outside = flat - factor.vectors @ inside
            outside = outside - factor.vectors @ (factor.vectors.T @ outside)  # what rounding left inside
            return unravel(factor.vectors @ (ratio * inside) + outside)  # [frangella2023]

        system = System(factor.operator.bind(), factor.damping)
        return solution_of(iterate(system, correct, gradient, guess), gradient, factor.damping)

    return Solver(prepare, solve)


def _ratio(values: Array, damping: Array) -> Float[Array, " rank"]:
    """(lambda_k + damping) / (lambda + damping), never zero or undefined."""
    least = jnp.maximum(values[-1] + damping, jnp.finfo(values.dtype).eps * values[0])
    return jnp.where(least > 0, least / jnp.maximum(values + damping, least), 1)


def sketch(operator: Operator, rank: int, after: Array, seed: int) -> tuple[Array, Array]:
    """Eigenvectors and eigenvalues of (F V) (V^T F V)^+ (F V)^T for random orthonormal V, safely shifted."""
    flat, unravel = ravel_pytree(operator.like)
    size = min(rank, flat.size)
    drawn = jax.random.normal(jax.random.key(seed), (flat.size, size), flat.dtype)  # ~ N(0, I)
    mv = operator.bind().mv
    start = jnp.linalg.qr(drawn + after)[0]
    seen = jax.lax.map(lambda v: ravel_pytree(mv(unravel(v)))[0], start.T, batch_size=_AT_ONCE).T
    rounding = jnp.finfo(flat.dtype)
    shift = jnp.maximum(rounding.eps * jnp.linalg.norm(seen), jnp.sqrt(rounding.tiny))
    shifted = seen + shift * start
    middle = start.T @ shifted
    upper = jax.scipy.linalg.cholesky((middle + middle.T) / 2)
    root = jax.scipy.linalg.solve_triangular(upper, shifted.T, trans=1).T  # root root^T is the sketch
    vectors, singular, _ = jnp.linalg.svd(root, full_matrices=False)
    return vectors, jnp.maximum(singular**2 - shift, 0)
