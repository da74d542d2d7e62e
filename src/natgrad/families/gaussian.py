"""Gaussians with the conditional independences of a graph: full, diagonal, and everything between.

    p(x; theta) = exp(theta . x + x^T Theta x - psi),    theta = P mu,   Theta = -P / 2,   P = Sigma^-1

Theta has free entries on its diagonal and on the edges of the graph; a missing edge is a zero of the
precision, so that the two variables are independent given all others. Vectors list (theta_i), (theta_ii),
(theta_ij along edges), as the slides do, with T = (x_i, x_i^2, 2 x_i x_j) and eta = E[T]: plus signs in
eta_ii = sigma_ii + mu_i^2 (docs/relaxation.md). The graph of all pairs is the full family, the empty one
the diagonal.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.errors import InputError
from natgrad.families import gaussian_fisher
from natgrad.families.family import Expectation, Natural, Points
from natgrad.families.selection import select_covariance

LOG_TWO_PI = float(np.log(2 * np.pi))
Moments = tuple[Float[Array, " variable"], Float[Array, "variable variable"]]


@dataclass(frozen=True)
class Gaussian:
    """n real variables; `edges` are the pairs (i, j), i < j, that may depend on each other given the rest."""

    size: int
    edges: tuple[tuple[int, int], ...]

    @property
    def parameters(self) -> int:
        """Means, variances, edges."""
        return 2 * self.size + len(self.edges)

    @property
    def is_closed(self) -> bool:
        """Whether theta(eta) is a formula: the full graph or the empty one."""
        return len(self.edges) in (0, self.size * (self.size - 1) // 2)

    @cached_property
    def rows(self) -> np.ndarray:
        """First index of every free entry of Theta, the diagonal first."""
        return np.array([*range(self.size), *(i for i, _ in self.edges)], int)

    @cached_property
    def columns(self) -> np.ndarray:
        """Second index of every free entry of Theta."""
        return np.array([*range(self.size), *(j for _, j in self.edges)], int)

    def statistics(self, points: Points) -> Float[Array, "*point parameter"]:
        """(x_i), (x_i^2), (2 x_i x_j)."""
        products = points[..., self.rows] * points[..., self.columns] * self._twice(points.dtype)
        return jnp.concatenate([points, products], axis=-1)

    def log_partition(self, theta: Natural) -> Float[Array, ""]:
        """psi = (n log 2 pi - theta^T Theta^-1 theta / 2 - log |-2 Theta|) / 2."""
        linear, quadratic = self.unpack(theta)
        factor = jnp.linalg.cholesky(-2 * quadratic)
        half = jax.scipy.linalg.solve_triangular(factor, linear, lower=True)
        return (self.size * LOG_TWO_PI + half @ half) / 2 - jnp.log(jnp.diagonal(factor)).sum()

    def negative_entropy(self, eta: Expectation) -> Float[Array, ""]:
        """phi = -(n (log 2 pi + 1) + log |Sigma|) / 2."""
        if not self.is_closed:
            theta = self.natural(eta)
            return jnp.vdot(theta, eta) - self.log_partition(theta)
        _, covariance = self.moments_of_expectation(eta)
        logarithm = 2 * jnp.log(jnp.diagonal(jnp.linalg.cholesky(covariance))).sum()
        return -(self.size * (LOG_TWO_PI + 1) + logarithm) / 2

    def expectation(self, theta: Natural) -> Expectation:
        """eta = (mu_i), (sigma_ii + mu_i^2), (2 sigma_ij + 2 mu_i mu_j)."""
        return self.expectation_of_moments(*self.moments(theta))

    def natural(self, eta: Expectation) -> Natural:
        """theta(eta): a formula, or covariance selection where the graph is neither full nor empty."""
        mean, covariance = self.moments_of_expectation(eta)
        if self.is_closed:
            return self.of_moments(mean, covariance)
        precision = select_covariance(covariance, self.rows, self.columns)
        return self.pack(precision @ mean, -precision / 2)

    def natural_fisher(self, theta: Natural) -> Float[Array, "parameter parameter"]:
        """Hess psi in blocks."""
        return gaussian_fisher.natural_fisher(*self.unpack(theta), self.rows, self.columns)

    def expectation_fisher(self, eta: Expectation) -> Float[Array, "parameter parameter"]:
        """Hess phi: in blocks, or the inverse of Hess psi where theta(eta) has no formula."""
        if not self.is_closed:
            return jnp.linalg.inv(self.natural_fisher(self.natural(eta)))
        mean, covariance = self.moments_of_expectation(eta)
        if not self.edges:
            return gaussian_fisher.diagonal_expectation(mean, 1 / jnp.diagonal(covariance))
        return gaussian_fisher.expectation_fisher(mean, jnp.linalg.inv(covariance), self.rows, self.columns)

    def sample(self, key: PRNGKeyArray, theta: Natural, number: int) -> Float[Array, "number variable"]:
        """Draws through the Cholesky factor of the precision, which is as sparse as the graph allows."""
        linear, quadratic = self.unpack(theta)
        factor = jnp.linalg.cholesky(-2 * quadratic)
        mean = jax.scipy.linalg.cho_solve((factor, True), linear)
        normal = jax.random.normal(key, (self.size, number), theta.dtype)
        return (
            mean + jax.scipy.linalg.solve_triangular(factor, normal, lower=True, trans=1).T
        )  # ~ N(mu, Sigma)

    def moments(self, theta: Natural) -> Moments:
        """Mean and covariance."""
        linear, quadratic = self.unpack(theta)
        covariance = jnp.linalg.inv(-2 * quadratic)
        return covariance @ linear, (covariance + covariance.T) / 2

    def of_moments(
        self, mean: Float[Array, " variable"], covariance: Float[Array, "variable variable"]
    ) -> Natural:
        """theta of a mean and a covariance that belongs to the family."""
        precision = jnp.linalg.inv(covariance)
        return self.pack(precision @ mean, -(precision + precision.T) / 4)

    def moments_of_expectation(self, eta: Expectation) -> Moments:
        """Mean, and the covariance as far as eta tells: zero where there is no edge."""
        mean = eta[: self.size]
        entries = eta[self.size :] / self._twice(eta.dtype) - mean[self.rows] * mean[self.columns]
        return mean, self.symmetric(entries)

    def expectation_of_moments(
        self, mean: Float[Array, " variable"], covariance: Float[Array, "variable variable"]
    ) -> Expectation:
        """eta of a mean and a covariance."""
        second = covariance + jnp.outer(mean, mean)
        return jnp.concatenate([mean, second[self.rows, self.columns] * self._twice(mean.dtype)])

    def unpack(self, theta: Natural) -> tuple[Float[Array, " variable"], Float[Array, "variable variable"]]:
        """The vector theta and the matrix Theta."""
        return theta[: self.size], self.symmetric(theta[self.size :])

    def pack(
        self, linear: Float[Array, " variable"], quadratic: Float[Array, "variable variable"]
    ) -> Natural:
        """The inverse of `unpack`."""
        return jnp.concatenate([linear, quadratic[self.rows, self.columns]])

    def symmetric(self, entries: Float[Array, " free"]) -> Float[Array, "variable variable"]:
        """The symmetric matrix with these free entries and zeros elsewhere."""
        empty = jnp.zeros((self.size, self.size), entries.dtype)
        return empty.at[self.rows, self.columns].set(entries).at[self.columns, self.rows].set(entries)

    def _twice(self, dtype: np.dtype) -> np.ndarray:
        return np.where(self.rows == self.columns, 1, 2).astype(dtype)


def full(size: int) -> Gaussian:
    """Every pair of variables may depend on each other."""
    return Gaussian(size, tuple(combinations(range(size), 2)))


def diagonal_gaussian(size: int) -> Gaussian:
    """Independent variables."""
    return Gaussian(size, ())


def sparse(size: int, edges: Iterable[tuple[int, int]], zeros: Iterable[tuple[int, int]] = ()) -> Gaussian:
    """Dependence along edges only; `zeros` are pairs that the caller wants to see independent given the rest.

    >>> sparse(3, [(1, 0), (2, 1)]).edges
    ((0, 1), (1, 2))
    """
    chosen = {(min(edge), max(edge)) for edge in edges}
    banned = {(min(pair), max(pair)) for pair in zeros}
    if wrong := [edge for edge in chosen if edge[0] == edge[1] or not 0 <= edge[0] < edge[1] < size]:
        raise InputError(
            f"an edge joins two different variables of 0 to {size - 1}, got {wrong[0]}; correct it"
        )
    if loops := [pair for pair in banned if pair[0] == pair[1]]:
        raise InputError(
            f"a zero at {loops[0]} is on the diagonal, where a precision is positive; ask for zeros off it"
        )
    if both := sorted(chosen & banned):
        raise InputError(
            f"the pair {both[0]} is both an edge and a zero of the precision; leave it out of one of them"
        )
    return Gaussian(size, tuple(sorted(chosen)))
