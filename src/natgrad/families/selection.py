"""Covariance selection: the Gaussian of a graph that has given variances and covariances along its edges.

Of all precisions P with zeros off the graph it is the one whose inverse agrees with S on it: the minimum of
tr(S P) - log |P|, a self-concordant function. Newton's method with the step 1 / (1 + decrement) therefore
stays in the cone of positive definite matrices and needs no line search [boyd2004 sec. 9.6].
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natgrad.families.gaussian_fisher import traces

_STEPS = 60
_Square = Float[Array, "variable variable"]


def select_covariance(covariance: _Square, rows: np.ndarray, columns: np.ndarray) -> _Square:
    """The precision of the graph whose inverse equals `covariance` on the free entries (rows, columns).

    Only those entries are read. The last Newton step is outside the loop: its derivative is that of the
    implicit function.
    """
    start = jnp.diag(1 / jnp.diagonal(covariance))

    def improve(carry: tuple[_Square, Array, Array]) -> tuple[_Square, Array, Array]:
        precision, _, count = carry
        direction, decrement = _newton(precision, covariance, rows, columns)
        length = jnp.where(decrement > 0.25, 1 / (1 + decrement), 1.0)
        return precision + length * direction, decrement, count + 1

    def unfinished(carry: tuple[_Square, Array, Array]) -> Array:
        return (carry[1] > 1e-13) & (carry[2] < _STEPS)

    first = (start, jnp.full((), jnp.inf, covariance.dtype), jnp.zeros((), int))
    found = jax.lax.stop_gradient(jax.lax.while_loop(unfinished, improve, first)[0])
    return found + _newton(found, covariance, rows, columns)[0]


def _newton(
    precision: _Square, covariance: _Square, rows: np.ndarray, columns: np.ndarray
) -> tuple[_Square, Float[Array, ""]]:
    inverse = jnp.linalg.inv(precision)
    weight = jnp.asarray(np.where(rows == columns, 1.0, 2.0), precision.dtype)
    slope = weight * (inverse - covariance)[rows, columns]  # of log |P| - tr(S P) in the free entries
    entries = jnp.linalg.solve(traces(inverse, rows, columns), slope)
    empty = jnp.zeros_like(precision)
    direction = empty.at[rows, columns].set(entries).at[columns, rows].set(entries)
    return direction, jnp.sqrt(jnp.vdot(slope, entries))
