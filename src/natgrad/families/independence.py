"""The independence model over {-1, +1}^n.

    p(x; theta) = prod_i exp(theta_i x_i) / (exp theta_i + exp -theta_i),   T(x) = x

Three charts: theta; eta = E[x], dual to it; mu = P(x = +1) = (1 + eta) / 2, in which the slides draw
their pictures. The natural gradient in theta is the gradient in *eta*; the one in mu is twice that.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.families.chart import Chart
from natgrad.families.family import Expectation, Natural, Points


@dataclass(frozen=True)
class Independence:
    """n independent variables with values -1 and +1."""

    size: int

    @property
    def parameters(self) -> int:
        """One per variable."""
        return self.size

    def statistics(self, points: Points) -> Float[Array, "*point parameter"]:
        """T(x) = x."""
        return points

    def log_partition(self, theta: Natural) -> Float[Array, ""]:
        """psi = sum log(2 cosh theta_i)."""
        return jnp.logaddexp(theta, -theta).sum()

    def negative_entropy(self, eta: Expectation) -> Float[Array, ""]:
        """phi = sum of mu log mu + (1 - mu) log(1 - mu); zero at the vertices."""
        up, down = (1 + eta) / 2, (1 - eta) / 2
        return (xlogy(up, up) + xlogy(down, down)).sum()

    def expectation(self, theta: Natural) -> Expectation:
        """eta = tanh theta."""
        return jnp.tanh(theta)

    def natural(self, eta: Expectation) -> Natural:
        """theta = artanh eta."""
        return jnp.arctanh(eta)

    def natural_fisher(self, theta: Natural) -> Float[Array, "parameter parameter"]:
        """Diagonal: the variances 1 - tanh(theta)^2."""
        return jnp.diag(1 / jnp.cosh(theta) ** 2)

    def expectation_fisher(self, eta: Expectation) -> Float[Array, "parameter parameter"]:
        """Diagonal: 1 / (1 - eta^2)."""
        return jnp.diag(1 / ((1 - eta) * (1 + eta)))

    def sample(self, key: PRNGKeyArray, theta: Natural, number: int) -> Float[Array, "number variable"]:
        """Independent draws."""
        uniform = jax.random.uniform(key, (number, self.size), theta.dtype)
        return jnp.where(uniform < jax.nn.sigmoid(2 * theta), 1.0, -1.0).astype(theta.dtype)  # ~ p(x; theta)


def probability_chart(family: Independence) -> Chart:
    """mu_i = P(x_i = +1), with Fisher 1 / (mu (1 - mu))."""
    return Chart(
        lambda mu: (jnp.log(mu) - jnp.log1p(-mu)) / 2,
        lambda theta: jax.nn.sigmoid(2 * theta),
        lambda mu: jnp.diag(1 / (mu * (1 - mu))),
    )
