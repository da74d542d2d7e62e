"""Steps that cannot leave the manifold, cheaper than exponential maps and equal to them to first order.

For a covariance C = A A^T a step is made in the coordinates of A, as A f(M) with M symmetric. The matrix
exponential f = exp is that of natural evolution strategies [xnes]; 1 + M + M^2 / 2 = (1 + (1 + M)^2) / 2 is
positive definite for every M, agrees with exp to second order, and costs one product [lin2020].
"""

import jax.numpy as jnp
from jax.scipy.linalg import expm
from jaxtyping import Array, Float

_Square = Float[Array, "n n"]
_Vector = Float[Array, " n"]


def exponential_factor(factor: _Square, tangent: _Square) -> _Square:
    """A exp(M / 2): the factor of A exp(M) A^T."""
    return factor @ expm(tangent / 2)


def quadratic_factor(factor: _Square, tangent: _Square) -> _Square:
    """A (1 + M / 2 + M^2 / 8): never singular, and no factorization is needed."""
    half = factor @ tangent / 2
    return factor + half + half @ tangent / 4


def quadratic_definite(matrix: _Square, tangent: _Square) -> _Square:
    """S + V + V S^-1 V / 2, positive definite for every symmetric V [lin2020]."""
    return matrix + tangent + tangent @ jnp.linalg.solve(matrix, tangent) / 2


def exponential_definite(matrix: _Square, tangent: _Square) -> _Square:
    """S exp(S^-1 V): the Fisher geodesic of covariances at a fixed mean, and of precisions alike."""
    moved = matrix @ expm(jnp.linalg.solve(matrix, tangent))
    return (moved + moved.T) / 2


def gaussian_step(
    mean: _Vector, factor: _Square, drift: _Vector, tangent: _Square
) -> tuple[_Vector, _Square]:
    """mu + A v and A (1 + M / 2 + M^2 / 8): a step in the coordinates of natural evolution strategies."""
    return mean + factor @ drift, quadratic_factor(factor, tangent)


def independence_step(eta: _Vector, tangent: _Vector) -> _Vector:
    """tanh(artanh eta + v / (1 - eta^2)): the e-geodesic with velocity v in eta, which reaches no vertex."""
    return jnp.tanh(jnp.arctanh(eta) + tangent / ((1 - eta) * (1 + eta)))
