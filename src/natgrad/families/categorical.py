"""All strictly positive distributions of k outcomes, the interior of the simplex.

The last outcome is the reference: T(x) is the indicator of the others, theta_i = log p_i / p_k, and
eta = (p_1, ..., p_{k-1}).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp, xlogy
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.families.family import Expectation, Natural, Points


@dataclass(frozen=True)
class Categorical:
    """k outcomes, numbered from 0; a point is an array [..., 1] of outcomes."""

    outcomes: int
    size: int = 1

    @property
    def parameters(self) -> int:
        """One less than outcomes."""
        return self.outcomes - 1

    def statistics(self, points: Points) -> Float[Array, "*point parameter"]:
        """The indicators of all outcomes but the last."""
        return (points == jnp.arange(self.parameters, dtype=points.dtype)).astype(points.dtype)

    def log_partition(self, theta: Natural) -> Float[Array, ""]:
        """psi = log(1 + sum exp theta)."""
        return logsumexp(_with_reference(theta))

    def negative_entropy(self, eta: Expectation) -> Float[Array, ""]:
        """phi = sum p log p."""
        chances = self.probabilities(eta)
        return xlogy(chances, chances).sum()

    def expectation(self, theta: Natural) -> Expectation:
        """The first k - 1 probabilities."""
        return jax.nn.softmax(_with_reference(theta))[:-1]

    def natural(self, eta: Expectation) -> Natural:
        """log p_i - log p_k."""
        return jnp.log(eta) - jnp.log1p(-eta.sum())

    def natural_fisher(self, theta: Natural) -> Float[Array, "parameter parameter"]:
        """diag(p) - p p^T."""
        eta = self.expectation(theta)
        return jnp.diag(eta) - jnp.outer(eta, eta)

    def expectation_fisher(self, eta: Expectation) -> Float[Array, "parameter parameter"]:
        """diag(1 / p) + 1 / p_k."""
        return jnp.diag(1 / eta) + 1 / (1 - eta.sum())

    def sample(self, key: PRNGKeyArray, theta: Natural, number: int) -> Float[Array, "number variable"]:
        """Independent outcomes, as numbers."""
        drawn = jax.random.categorical(key, _with_reference(theta), shape=(number, 1))
        return drawn.astype(theta.dtype)  # ~ p(x; theta)

    def probabilities(self, eta: Expectation) -> Float[Array, " outcome"]:
        """All k probabilities from the first k - 1."""
        return jnp.append(eta, 1 - eta.sum())


def _with_reference(theta: Natural) -> Float[Array, " outcome"]:
    return jnp.append(theta, jnp.zeros((), theta.dtype))
