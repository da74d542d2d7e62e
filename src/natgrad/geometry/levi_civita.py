"""Geodesics of the Fisher metric itself, where they have a closed form.

Independent binary variables are circles (eta = sin of the angle), categorical distributions a sphere
(sqrt p), one Gaussian variable a hyperbolic half plane, and all Gaussians a symmetric space in which the
geodesic with a given start and velocity is a matrix exponential [eriksen1987]. Times are in units of
the velocity given.
"""

import jax.numpy as jnp
from jax.scipy.linalg import expm, solve_triangular
from jaxtyping import Array, Float

from natgrad.families.gaussian import Moments

_Time = float | Float[Array, ""]
_Vector = Float[Array, " variable"]


def circle_exponential(eta: _Vector, tangent: _Vector, time: _Time = 1.0) -> _Vector:
    """The independence model: arcsin eta moves at constant speed, and stops where the manifold ends."""
    angle = jnp.arcsin(eta) + time * tangent / jnp.sqrt((1 - eta) * (1 + eta))
    return jnp.sin(jnp.clip(angle, -jnp.pi / 2, jnp.pi / 2))


def circle_geodesic(left: _Vector, right: _Vector, time: _Time) -> _Vector:
    """The shortest path between two independence models, both in eta."""
    return jnp.sin((1 - time) * jnp.arcsin(left) + time * jnp.arcsin(right))


def circle_distance(left: _Vector, right: _Vector) -> Float[Array, ""]:
    """Its length."""
    return jnp.linalg.norm(jnp.arcsin(left) - jnp.arcsin(right))


def sphere_exponential(
    chances: Float[Array, " outcome"], tangent: Float[Array, " outcome"], time: _Time = 1.0
) -> Float[Array, " outcome"]:
    """Categorical, all k probabilities; the tangent sums to zero. Great circles of sqrt p, radius 2.

    Valid as long as no probability has reached zero on the way.
    """
    root = jnp.sqrt(chances)
    velocity = tangent / (2 * root)
    speed = jnp.linalg.norm(velocity)
    return (jnp.cos(time * speed) * root + time * jnp.sinc(time * speed / jnp.pi) * velocity) ** 2


def sphere_distance(left: Float[Array, " outcome"], right: Float[Array, " outcome"]) -> Float[Array, ""]:
    """Twice the angle between sqrt p and sqrt q."""
    return 2 * jnp.arccos(jnp.clip(jnp.sum(jnp.sqrt(left * right)), -1.0, 1.0))


def half_plane_distance(left: Float[Array, "2"], right: Float[Array, "2"]) -> Float[Array, ""]:
    """Between two Gaussians of one variable, (mean, standard deviation) each."""
    (m, s), (n, t) = left, right
    gap = (m - n) ** 2 / 2 + (s - t) ** 2
    return jnp.sqrt(2.0).astype(left.dtype) * jnp.arccosh(1 + gap / (2 * s * t))


def gaussian_exponential(start: Moments, tangent: Moments, time: _Time = 1.0) -> Moments:
    """All Gaussians: the one after time t on the geodesic from (mu, Sigma) with velocity (mu', Sigma').

    The start is moved to the standard Gaussian by x -> L^-1 (x - mu), an isometry. There the precision and
    P mu are two blocks of exp(t A), with A of side 2 n + 1 [eriksen1987].
    """
    mean, covariance = start
    factor = jnp.linalg.cholesky(covariance)
    drift = solve_triangular(factor, tangent[0], lower=True)
    spread = solve_triangular(factor, solve_triangular(factor, tangent[1], lower=True).T, lower=True)
    size = len(mean)
    column, square = drift[:, None], jnp.zeros_like(spread)
    generator = jnp.block(
        [
            [-spread, column, square],
            [column.T, jnp.zeros((1, 1), mean.dtype), -column.T],
            [square, -column, spread],
        ]
    )
    moved = expm(time * generator)
    inverse = jnp.linalg.inv(moved[:size, :size])
    new_mean = mean + factor @ (inverse @ moved[:size, size])
    new_covariance = factor @ ((inverse + inverse.T) / 2) @ factor.T
    return new_mean, new_covariance


def covariance_geodesic(
    left: Float[Array, "n n"], right: Float[Array, "n n"], time: _Time
) -> Float[Array, "n n"]:
    """Between two Gaussians of equal mean: A^(1/2) (A^(-1/2) B A^(-1/2))^t A^(1/2), by a Cholesky factor."""
    factor = jnp.linalg.cholesky(left)
    middle = solve_triangular(factor, solve_triangular(factor, right, lower=True).T, lower=True)
    values, vectors = jnp.linalg.eigh(middle)
    return factor @ ((vectors * values**time) @ vectors.T) @ factor.T


def covariance_distance(left: Float[Array, "n n"], right: Float[Array, "n n"]) -> Float[Array, ""]:
    """The length of `covariance_geodesic`: sqrt(sum log^2 of the relative eigenvalues / 2)."""
    factor = jnp.linalg.cholesky(left)
    middle = solve_triangular(factor, solve_triangular(factor, right, lower=True).T, lower=True)
    return jnp.sqrt(jnp.sum(jnp.log(jnp.linalg.eigvalsh(middle)) ** 2) / 2)


def speed(fisher: Float[Array, "p p"], tangent: Float[Array, " p"]) -> Float[Array, ""]:
    """The length of a tangent vector, sqrt(v^T I v)."""
    return jnp.sqrt(tangent @ fisher @ tangent)
