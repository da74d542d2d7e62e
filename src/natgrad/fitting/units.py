"""Parameters in units of how far they move the residuals: how a user measures them does not matter.

With D the norms of R's columns at the start, rounded to powers of two, a fit is one in q = D p. There the
columns of R have about the length one, and one damping is right for all of them [marquardt1963, more1978].
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from natgrad.core import Model
from natgrad.metrics.residuals import Residuals


class ParameterUnits(NamedTuple):
    """D, as a tree like the parameters."""

    sizes: Model

    def scaled(self, parameters: Model) -> Model:
        """q = D p."""
        return jax.tree.map(jnp.multiply, self.sizes, parameters)

    def plain(self, scaled: Model) -> Model:
        """p = q / D, exactly: these are powers of two."""
        return jax.tree.map(jnp.divide, scaled, self.sizes)

    def of(self, residuals: Residuals) -> Residuals:
        """The residuals as a function of q."""
        return lambda q, batch: residuals(self.plain(q), batch)


def parameter_units(columns: Float[Array, " parameter"], parameters: Model) -> ParameterUnits:
    """From the squares of R's columns; a parameter without effect has the mean one."""
    usual = jnp.sqrt(columns.mean())
    norms = jnp.where(columns > 0, jnp.sqrt(columns), usual)
    known = jnp.isfinite(norms) & (norms > 0)
    exponents = jnp.round(jnp.log2(jnp.where(known, norms, 1))).astype(jnp.int32)
    sizes = jnp.ldexp(jnp.ones_like(norms), exponents)  # exact, as exp2 is not
    return ParameterUnits(ravel_pytree(parameters)[1](sizes))


def mean_square(columns: Array, units: ParameterUnits) -> Any:
    """The mean of F's diagonal in these units."""
    return jnp.mean(columns / ravel_pytree(units.sizes)[0] ** 2)
