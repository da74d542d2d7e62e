"""Stochastic relaxation: the expectation F(p) = E_p[f] and its gradients, exact or from evaluations alone.

    grad F(theta) = Cov(f, T)                        it is the natural gradient in eta, too
    natural gradient in theta = Cov(T, T)^-1 Cov(f, T) = grad F(eta)

Exact by enumeration on {-1,+1}^n, exact for polynomials under a Gaussian, by Monte Carlo otherwise [slides].
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.errors import InputError
from natgrad.families.family import Expectation, Family, Natural
from natgrad.families.gaussian import Gaussian
from natgrad.families.independence import Independence
from natgrad.families.interactions import Interactions, all_points

DEGREE = 4
Function = Callable[[Array], Array]


class Polynomial(NamedTuple):
    """f(x) = sum of coefficients times products; `terms` lists the variables of each, with repetition."""

    terms: tuple[tuple[int, ...], ...]
    coefficients: tuple[float, ...]

    def __call__(self, points: Float[Array, "*point variable"]) -> Float[Array, "*point"]:
        """f at one point or at many."""
        products = [jnp.prod(points[..., list(term)], axis=-1) for term in self.terms]
        total = jnp.zeros(points.shape[:-1], points.dtype)
        return sum((c * p for c, p in zip(self.coefficients, products, strict=True)), total)

    @property
    def size(self) -> int:
        """One more than the largest variable."""
        return 1 + max((max(term, default=-1) for term in self.terms), default=-1)


def polynomial(terms: Mapping[tuple[int, ...], float]) -> Polynomial:
    """A polynomial from a mapping, for example {(0,): 1.0, (0, 0): -3.0} for x - 3 x^2.

    >>> float(polynomial({(0,): 1.0, (1,): 2.0, (0, 1): 3.0})(jnp.array([1.0, -1.0])))
    -4.0
    """
    for term in terms:
        check_degree(len(term))
    return Polynomial(tuple(terms), tuple(float(value) for value in terms.values()))


def check_degree(degree: int) -> None:
    """Refuse a term of too high a degree."""
    if degree > DEGREE:
        raise InputError(f"polynomials go up to degree {DEGREE}, got a term of a higher one; lower it")


def enumerated_mean(
    function: Function, family: Independence | Interactions
) -> Callable[[Natural], Float[Array, ""]]:
    """theta -> E[f] by a sum over all 2^n points; `function` takes all points at once."""
    points = jnp.asarray(all_points(family.size))
    values = function(points)

    def expected(theta: Natural) -> Float[Array, ""]:
        energies = family.statistics(points) @ theta
        return jax.nn.softmax(energies) @ values

    return expected


def gaussian_expectation(function: Polynomial, family: Gaussian) -> Callable[[Natural], Float[Array, ""]]:
    """theta -> E[f] of a polynomial, by Gaussian moments."""

    def expected(theta: Natural) -> Float[Array, ""]:
        mean, covariance = family.moments(theta)
        total = jnp.zeros((), theta.dtype)
        pairs = zip(function.coefficients, function.terms, strict=True)
        return sum((c * moment(mean, covariance, term) for c, term in pairs), total)

    return expected


def moment(
    mean: Float[Array, " variable"], covariance: Float[Array, "variable variable"], term: tuple[int, ...]
) -> Float[Array, ""]:
    """E[x_i x_j ...] by Stein's identity: E[x_i g] = mu_i E[g] + sum_j sigma_ij E[d g / d x_j]."""
    if not term:
        return jnp.ones((), mean.dtype)
    first, rest = term[0], term[1:]
    total = mean[first] * moment(mean, covariance, rest)
    for place, other in enumerate(rest):
        total += covariance[first, other] * moment(mean, covariance, rest[:place] + rest[place + 1 :])
    return total


def covariance_gradient(
    values: Float[Array, " point"],
    statistics: Float[Array, "point parameter"],
    eta: Expectation | None = None,
) -> Float[Array, " parameter"]:
    """Cov(f, T) from evaluations at draws of p: unbiased, with their own mean of f as the baseline.

    Where eta is known it replaces the mean of T; the baseline's factor n / (n - 1) stays.
    """
    number = len(values)
    center = statistics.mean(axis=0) if eta is None else eta
    return (values - values.mean()) @ (statistics - center) / (number - 1)


def natural_from_samples(
    values: Float[Array, " point"], statistics: Float[Array, "point parameter"], damping: float = 0.0
) -> Float[Array, " parameter"]:
    """Cov(T, T)^-1 Cov(f, T) from draws: the slopes of a least-squares fit of f by the statistics.

    Exact as soon as f lies in the span of T and there are more draws than statistics. With damping the
    solve is (damping + Cov(T, T))^-1, in the smaller of the two spaces.
    """
    number, parameters = statistics.shape
    spread = (statistics - statistics.mean(axis=0)) / jnp.sqrt(number - 1.0).astype(values.dtype)
    residual = (values - values.mean()) / jnp.sqrt(number - 1.0).astype(values.dtype)
    if number <= parameters and damping > 0:
        gram = spread @ spread.T + damping * jnp.eye(number, dtype=values.dtype)
        return spread.T @ jnp.linalg.solve(gram, residual)
    fisher = spread.T @ spread + damping * jnp.eye(parameters, dtype=values.dtype)
    return jnp.linalg.solve(fisher, spread.T @ residual)


def sampled_gradient(
    key: Array, function: Function, family: Family, theta: Natural, number: int
) -> tuple[Float[Array, ""], Float[Array, " parameter"]]:
    """The mean of f and Cov(f, T), from `number` evaluations of f at draws of the distribution."""
    points = family.sample(key, theta, number)
    values = function(points)
    return values.mean(), covariance_gradient(values, family.statistics(points), family.expectation(theta))


def polarization(chances: Float[Array, " outcome"]) -> Float[Array, ""]:
    """POL(p) = sum p_i^2 (1 - p_i): zero where all agree, 1/4 at most, where two outcomes share everything.

    >>> float(polarization(jnp.array([0.5, 0.5, 0.0])))
    0.25
    """
    return jnp.sum(chances**2 * (1 - chances))


def mean_log_likelihood(
    family: Family, statistics: Float[Array, " parameter"]
) -> Callable[[Natural], Float[Array, ""]]:
    """theta -> mean log-likelihood of data with mean statistics T: theta . T - psi(theta).

    Its gradient in theta is T - eta, which is also its natural gradient in eta: there, one step of length one
    is the maximum-likelihood estimate.
    """

    def value(theta: Natural) -> Float[Array, ""]:
        return jnp.vdot(theta, statistics) - family.log_partition(theta)

    return value
