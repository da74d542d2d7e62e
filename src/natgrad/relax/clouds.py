"""Gaussian strategies: points m + s A z with z standard normal, C = A A^T.

In the coordinates (v, M) of a step m + s A v, A exp(M / 2) the Fisher matrix at the current Gaussian
is diagonal: the natural gradient is a weighted mean over the population, v = sum w z and
M = sum w (z z^T - 1) [xnes].
`adaptive_cloud` adds cumulation: a path of past steps sets the scale s and a direction of its own, with the
constants of CMA-ES [cmatutorial] in the frame of A, where no matrix is ever factorized [maes].
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.devices import placed
from natgrad.families.gaussian import Gaussian
from natgrad.families.selection import select_covariance
from natgrad.geometry.retractions import exponential_factor, quadratic_factor
from natgrad.relax import weights
from natgrad.relax.strategy import Draws, Strategy

_Values = Float[Array, " point"]
Assign = Callable[[_Values], _Values]


class Cloud(NamedTuple):
    """Mean, factor (a vector where variables are independent), scale, and the path of past steps."""

    mean: Float[Array, " variable"]
    factor: Float[Array, "variable variable"] | Float[Array, " variable"]
    scale: Float[Array, ""]
    path: Float[Array, " variable"]


class Rates(NamedTuple):
    """Learning rates of path, rank-one, rank-mu, and the damping of the scale [cmatutorial table 1]."""

    path: float
    one: float
    rank: float
    damping: float
    negative: float


def first_cloud(mean: np.ndarray, factor: np.ndarray) -> Cloud:
    """The cloud at the beginning; `factor` is scaled so that the scale is one number."""
    scale = float(np.exp(np.mean(np.log(np.abs(np.diagonal(factor) if factor.ndim == 2 else factor)))))
    return Cloud(
        jnp.asarray(mean), jnp.asarray(factor / scale), jnp.asarray(scale), jnp.zeros(len(mean), mean.dtype)
    )


def draw_cloud(population: int) -> Callable[[PRNGKeyArray, Cloud], Draws]:
    """Points of the cloud, with the standard normal draws they come from."""

    def draw(key: PRNGKeyArray, cloud: Cloud) -> Draws:
        normal = jax.random.normal(key, (population, len(cloud.mean)), cloud.mean.dtype)
        normal = placed(normal, "rows", None)
        return Draws(cloud.mean + cloud.scale * _turn(cloud.factor, normal), normal)  # ~ N(m, s^2 A A^T)

    return draw


def adaptive_cloud(
    population: int, cloud: Cloud, edges: tuple[tuple[int, int], ...] | None = None
) -> Strategy:
    """The default: active rank-mu and rank-one steps along the cone, and a scale from the length of the path.

    With edges, each new covariance is replaced by that of the graph's Gaussian nearest in divergence.
    """
    size, whole = len(cloud.mean), cloud.factor.ndim == 2
    positive, negative, effective = weights.recombination(population)
    rates = learning_rates(population, size, diagonal=not whole)
    ordinary = float(np.sqrt(size) * (1 - 1 / (4 * size) + 1 / (21 * size**2)))  # E |N(0, 1)|
    graph = None if edges is None else Gaussian(size, edges)

    def tell(cloud: Cloud, draws: Draws, values: _Values) -> Cloud:
        normal = draws.origin
        better = weights.shared_by_rank(values, positive)
        worse = weights.shared_by_rank(values, rates.negative * negative)
        worse = worse * size / (normal**2).sum(axis=1)  # [cmatutorial eq. 46]
        drift = better @ normal
        path = (1 - rates.path) * cloud.path + np.sqrt(rates.path * (2 - rates.path) * effective) * drift
        tangent = rates.one * _surplus(path[None], jnp.ones(1, path.dtype), 1.0, whole)
        tangent += rates.rank * _surplus(normal, better + worse, 1 - rates.negative, whole)
        grown = jnp.exp(rates.path / rates.damping * (jnp.linalg.norm(path) / ordinary - 1))
        mean = cloud.mean + cloud.scale * _turn(cloud.factor, drift)
        factor = _project(_move(cloud.factor, tangent), graph)
        return Cloud(mean, factor, cloud.scale * jnp.minimum(grown, np.e), path)

    return Strategy(
        population, lambda: cloud, draw_cloud(population), tell, cloud_width, lambda cloud: cloud.mean
    )


def exponential_natural(
    population: int, cloud: Cloud, *, rate: float | None = None, assign: Assign | None = None
) -> Strategy:
    """Exponential natural evolution strategies [xnes]: m + A v and A exp(rate M / 2)."""
    size, whole = len(cloud.mean), cloud.factor.ndim == 2
    chosen = (9 + 3 * np.log(size)) / (5 * size * np.sqrt(size)) if rate is None else rate  # [xnes table 1]
    if rate is None and not whole:
        chosen = (3 + np.log(size)) / (5 * np.sqrt(size))
    utilities = weights.logarithmic(population)

    def tell(cloud: Cloud, draws: Draws, values: _Values) -> Cloud:
        normal = draws.origin
        weight = weights.shared_by_rank(values, utilities) if assign is None else assign(values)
        tangent = chosen * _surplus(normal, weight, weight.sum(), whole)
        factor = exponential_factor(cloud.factor, tangent) if whole else cloud.factor * jnp.exp(tangent / 2)
        mean = cloud.mean + cloud.scale * _turn(cloud.factor, weight @ normal)
        return cloud._replace(mean=mean, factor=factor)

    return Strategy(
        population, lambda: cloud, draw_cloud(population), tell, cloud_width, lambda cloud: cloud.mean
    )


def rank_mu(population: int, cloud: Cloud, *, rate: float | None = None) -> Strategy:
    """The natural-gradient step in (m, C) itself: C + rate sum w ((x - m)(x - m)^T - C) [igo sec. 5.1]."""
    size = len(cloud.mean)
    positive, _, _ = weights.recombination(population)
    chosen = learning_rates(population, size, diagonal=False).rank if rate is None else rate

    def tell(cloud: Cloud, draws: Draws, values: _Values) -> Cloud:
        steps = draws.points - cloud.mean
        weight = weights.shared_by_rank(values, positive)
        covariance = cloud.scale**2 * cloud.factor @ cloud.factor.T
        moved = (1 - chosen) * covariance + chosen * (steps.T * weight) @ steps
        factor = jnp.linalg.cholesky(moved) / cloud.scale
        return cloud._replace(mean=cloud.mean + weight @ steps, factor=factor)

    return Strategy(
        population, lambda: cloud, draw_cloud(population), tell, cloud_width, lambda cloud: cloud.mean
    )


def learning_rates(population: int, size: int, *, diagonal: bool) -> Rates:
    """The constants of CMA-ES; independent variables learn (n + 2) / 3 times faster."""
    _, negative, effective = weights.recombination(population)
    path = (effective + 2) / (size + effective + 5)
    one = 2 / ((size + 1.3) ** 2 + effective)
    rank = min(1 - one, 2 * (0.25 + effective + 1 / effective - 2) / ((size + 2) ** 2 + effective))
    if diagonal:
        faster = (size + 2) / 3
        one, rank = min(1.0, one * faster), min(1 - min(1.0, one * faster), rank * faster)
    damping = 1 + 2 * max(0.0, np.sqrt((effective - 1) / (size + 1)) - 1) + path
    against = 1 / (negative**2).sum()
    limits = (1 + one / rank, 1 + 2 * against / (effective + 2), (1 - one - rank) / (size * rank))
    return Rates(path, one, rank, damping, max(0.0, min(limits)))


def cloud_width(cloud: Cloud) -> Float[Array, ""]:
    """The largest standard deviation of a variable."""
    lengths = jnp.abs(cloud.factor) if cloud.factor.ndim == 1 else jnp.linalg.norm(cloud.factor, axis=1)
    return cloud.scale * lengths.max()


def _surplus(normal: Array, weight: _Values, total: float | Array, whole: bool) -> Array:
    """sum w z z^T - total, or its diagonal; the total is that of the weights before they were limited."""
    if not whole:
        return weight @ normal**2 - total
    return (normal.T * weight) @ normal - total * jnp.eye(normal.shape[1], dtype=normal.dtype)


def _turn(factor: Array, normal: Array) -> Array:
    return normal @ factor.T if factor.ndim == 2 else normal * factor


def _move(factor: Array, tangent: Array) -> Array:
    if factor.ndim == 2:
        return quadratic_factor(factor, tangent)
    return factor * (1 + tangent / 2 + tangent**2 / 8)


def _project(factor: Array, graph: Gaussian | None) -> Array:
    if graph is None:
        return factor
    precision = select_covariance(factor @ factor.T, graph.rows, graph.columns)
    return jnp.linalg.cholesky(jnp.linalg.inv(precision))
