"""Fisher matrices of Gaussians in closed form: the slides' blocks, without their case distinctions.

With D_kl = c_kl (e_k e_l^T + e_l e_k^T), c = 1/2 on the diagonal and 1 off it, every case of the slides'
tables is one expression, tr(A D_kl A D_mn) = 2 c_kl c_mn (A_km A_ln + A_kn A_lm): the corrected forms of
docs/relaxation.md. `miller` is the general formula for any chart [miller1974].
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_Vector = Float[Array, " variable"]
_Square = Float[Array, "variable variable"]
_Matrix = Float[Array, "parameter parameter"]


def natural_fisher(linear: _Vector, quadratic: _Square, rows: np.ndarray, columns: np.ndarray) -> _Matrix:
    """In theta: 1/2 [[-Theta^-1, Lambda_kl theta], [., lambda_klmn - theta^T Lambda_klmn theta]]."""
    inverse = jnp.linalg.inv(quadratic)
    turned = _apply(inverse @ linear, rows, columns)  # D_kl Theta^-1 theta
    corner = traces(inverse, rows, columns) - turned @ inverse @ turned.T
    return _blocks(-inverse, inverse @ turned.T, corner) / 2


def moment_fisher(precision: _Square, rows: np.ndarray, columns: np.ndarray) -> _Matrix:
    """In (mu, Sigma): block-diagonal, P and alpha_klmn = tr(P D_kl P D_mn) / 2."""
    corner = traces(precision, rows, columns) / 2
    return _blocks(precision, jnp.zeros((len(precision), len(rows)), precision.dtype), corner)


def expectation_fisher(mean: _Vector, precision: _Square, rows: np.ndarray, columns: np.ndarray) -> _Matrix:
    """In eta: [[Gamma, -K_kl eta], [., kappa_klmn]], Gamma = P + (eta^T P eta) P + P eta eta^T P."""
    raised = precision @ mean
    half = jnp.asarray(np.where(rows == columns, 1.0, 0.5), mean.dtype)  # eta_kl counts x_k x_l twice
    gamma = precision * (1 + mean @ raised) + jnp.outer(raised, raised)
    side = -precision @ (_apply(raised, rows, columns) * half[:, None]).T
    return _blocks(gamma, side, traces(precision, rows, columns) * jnp.outer(half, half) / 2)


def diagonal_expectation(mean: _Vector, precision: _Vector) -> _Matrix:
    """In eta of independent variables: the blocks of `expectation_fisher` for each of them alone."""
    gamma, side = precision + 2 * (precision * mean) ** 2, -(precision**2) * mean
    return _blocks(jnp.diag(gamma), jnp.diag(side), jnp.diag(precision**2 / 2))


def miller(chart: Callable[[Array], tuple[_Vector, _Square]], point: Array) -> _Matrix:
    """In any chart xi -> (mu, Sigma): d_i mu^T P d_j mu + tr(P d_i Sigma P d_j Sigma) / 2."""
    _, covariance = chart(point)
    precision = jnp.linalg.inv(covariance)
    mean_slope, covariance_slope = jax.jacfwd(chart)(point)
    raised = jnp.einsum("ab,bci->aci", precision, covariance_slope)
    return mean_slope.T @ precision @ mean_slope + jnp.einsum("abi,baj->ij", raised, raised) / 2


def _weights(rows: np.ndarray, columns: np.ndarray, dtype: np.dtype) -> Array:
    return jnp.asarray(np.where(rows == columns, 0.5, 1.0), dtype)


def traces(matrix: _Square, k: np.ndarray, l: np.ndarray) -> Float[Array, "free free"]:  # noqa: E741
    """tr(A D_kl A D_mn) for all pairs of free entries."""
    weight = _weights(k, l, matrix.dtype)
    straight = matrix[k[:, None], k] * matrix[l[:, None], l]
    crossed = matrix[k[:, None], l] * matrix[l[:, None], k]
    return 2 * jnp.outer(weight, weight) * (straight + crossed)


def _apply(vector: _Vector, k: np.ndarray, l: np.ndarray) -> Float[Array, "free variable"]:  # noqa: E741
    """D_kl v for all free entries."""
    weight = _weights(k, l, vector.dtype)
    entry = np.arange(len(k))
    empty = jnp.zeros((len(k), len(vector)), vector.dtype)
    return empty.at[entry, k].add(weight * vector[l]).at[entry, l].add(weight * vector[k])


def _blocks(corner: Array, side: Array, other: Array) -> _Matrix:
    return jnp.block([[corner, side], [side.T, other]])
