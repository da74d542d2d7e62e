"""Tiny families with a point of each, and slow obvious computations of what their closed forms claim."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.families import chart, gaussian
from natgrad.families.categorical import Categorical
from natgrad.families.gaussian_charts import deviation_chart, moment_chart
from natgrad.families.independence import Independence, probability_chart
from natgrad.families.interactions import Interactions, pairwise

MEAN, COVARIANCE = jnp.array([0.3, -0.7]), jnp.array([[1.0, -0.5], [-0.5, 2.0]])


def gaussian_point(family, seed=0):
    """A theta well inside the cone, with zeros where the family has them."""
    rng = np.random.default_rng(seed)
    entries = 0.3 * rng.normal(size=len(family.rows))
    entries[: family.size] = -1.2 - rng.uniform(size=family.size)
    return jnp.array([*rng.normal(size=family.size), *entries])


FAMILIES = {
    "independence": (Independence(3), jnp.array([0.3, -1.1, 0.7])),
    "pairwise": (pairwise(3, [(0, 1), (1, 2)]), jnp.array([0.2, -0.4, 0.1, 0.5, -0.6])),
    "triple": (Interactions(3, ((0,), (1, 2), (0, 1, 2))), jnp.array([0.4, -0.3, 0.8])),
    "categorical": (Categorical(4), jnp.array([0.5, -0.2, 1.0])),
    "full": (gaussian.full(2), gaussian.full(2).of_moments(MEAN, COVARIANCE)),
    "full 3": (gaussian.full(3), gaussian_point(gaussian.full(3))),
    "diagonal": (gaussian.diagonal_gaussian(2), gaussian_point(gaussian.diagonal_gaussian(2))),
    "chain": (gaussian.sparse(3, [(0, 1), (1, 2)]), gaussian_point(gaussian.sparse(3, [(0, 1), (1, 2)]))),
    "cycle": (
        gaussian.sparse(4, [(0, 1), (1, 2), (2, 3), (0, 3)]),
        gaussian_point(gaussian.sparse(4, [(0, 1), (1, 2), (2, 3), (0, 3)])),
    ),
}


def charts(name):
    """Every chart of a family."""
    family, _ = FAMILIES[name]
    found = {"theta": chart.natural_chart(family), "eta": chart.expectation_chart(family)}
    if isinstance(family, Independence):
        found["mu"] = probability_chart(family)
    if isinstance(family, gaussian.Gaussian) and family.is_closed:
        found["moments"] = moment_chart(family)
    if isinstance(family, gaussian.Gaussian) and not family.edges:
        found["deviation"] = deviation_chart(family)
    return found


CHARTS = [(name, key) for name in FAMILIES for key in charts(name)]


def support(family, theta):
    """Points and weights over which sums are exact (for Gaussians, of polynomials up to degree 11)."""
    if isinstance(family, Categorical):
        points = np.arange(family.outcomes, dtype=float)[:, None]
    elif isinstance(family, gaussian.Gaussian):
        nodes, weights = np.polynomial.hermite_e.hermegauss(6)
        grid = np.array(list(itertools.product(nodes, repeat=family.size)))
        mean, covariance = family.moments(theta)
        points = mean + jnp.asarray(grid) @ jnp.linalg.cholesky(covariance).T
        chances = np.array([np.prod(w) for w in itertools.product(weights, repeat=family.size)])
        return points, jnp.asarray(chances / chances.sum())
    else:
        points = np.array(list(itertools.product([-1.0, 1.0], repeat=family.size)))
    energies = family.statistics(jnp.asarray(points)) @ theta
    return jnp.asarray(points), jax.nn.softmax(energies)


def density(family, theta, points):
    """log p(x), written without natgrad's psi: by normalized sums, or by scipy's Gaussian."""
    if isinstance(family, gaussian.Gaussian):
        linear, quadratic = family.unpack(theta)
        covariance = jnp.linalg.inv(-2 * quadratic)
        return jax.scipy.stats.multivariate_normal.logpdf(points, covariance @ linear, covariance)
    every, _ = support(family, jnp.zeros_like(theta))
    return family.statistics(points) @ theta - jax.scipy.special.logsumexp(family.statistics(every) @ theta)


def score_fisher(name, key, point):
    """E[score score^T] in a chart, the scores by differentiation of the density, the mean by an exact sum."""
    family, _ = FAMILIES[name]
    used = charts(name)[key]
    points, chances = support(family, used.natural(point))
    scores = jax.jacfwd(lambda xi: density(family, used.natural(xi), points))(point)
    return (scores.T * chances) @ scores
