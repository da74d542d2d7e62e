"""Strategies over {-1, +1}^n with independent variables: one step in eta, eta + rate sum w (x - eta).

In eta the natural gradient needs no inverse. Population-based incremental learning, the univariate marginal
distribution algorithm and the compact genetic algorithm are this step with their own weights and rates
[igo sec. 5.2, pbil, umda, cga]. `adaptive_coins` measures the step by its Fisher length and adapts it to the
signal in successive steps, as the scale of a Gaussian is adapted by its path.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.devices import placed
from natgrad.relax import weights
from natgrad.relax.strategy import Draws, Strategy

_Values = Float[Array, " point"]
_PATIENCE = 1.5  # how much longer than noise's a path must be before steps grow
_ROUNDING = 1e-9  # a step this short is what rounding leaves where all values are equal


class Coins(NamedTuple):
    """Expectations, the Fisher length of a step, the path of past steps and its expected square length."""

    eta: Float[Array, " variable"]
    length: Float[Array, ""]
    path: Float[Array, " variable"]
    normal: Float[Array, ""]


def fair_coins(size: int) -> Coins:
    """Fair coins."""
    return Coins(jnp.zeros(size), jnp.ones(()), jnp.zeros(size), jnp.zeros(()))


def draw_coins(population: int) -> Callable[[PRNGKeyArray, Coins], Draws]:
    """Independent draws."""

    def draw(key: PRNGKeyArray, coins: Coins) -> Draws:
        uniform = jax.random.uniform(key, (population, len(coins.eta)), coins.eta.dtype)
        uniform = placed(uniform, "rows", None)
        return Draws(
            jnp.where(uniform < (1 + coins.eta) / 2, 1.0, -1.0).astype(coins.eta.dtype)
        )  # ~ p(x; eta)

    return draw


def stepping(
    population: int, size: int, utilities: np.ndarray, *, rate: float, margin: float | None = None
) -> Strategy:
    """eta + rate sum w (x - eta), kept a margin away from the vertices (by default 1 / n in probability)."""
    limit = 1 - 2 * (usual_margin(size) if margin is None else margin)

    def tell(coins: Coins, draws: Draws, values: _Values) -> Coins:
        weight = weights.shared_by_rank(values, utilities)
        moved = coins.eta + rate * (weight @ draws.points - weight.sum() * coins.eta)
        return coins._replace(eta=jnp.clip(moved, -limit, limit))

    return _strategy(population, size, tell)


def usual_margin(size: int) -> float:
    """How near a probability may come to 0 or 1: 1 / n, and 1 / 8 where variables are few."""
    return 1 / max(size, 8)


def pbil(population: int, size: int, *, rate: float = 0.1, parents: int = 2) -> Strategy:
    """Toward the mean of the best few [pbil]; no mutation, a margin instead."""
    return stepping(population, size, weights.truncation(population, parents), rate=rate)


def umda(population: int, size: int) -> Strategy:
    """The frequencies of the better half [umda]."""
    return stepping(population, size, weights.truncation(population, population // 2), rate=1.0)


def cga(size: int, *, steps: float) -> Strategy:
    """Two points: each probability moves by 1 / steps toward the winner where they differ [cga]."""
    return stepping(2, size, weights.tournament(2), rate=1 / steps)


def adaptive_coins(population: int, size: int) -> Strategy:
    """Steps of a Fisher length that grows while steps agree and shrinks while they are noise [asng]."""
    utilities = weights.logarithmic(population)
    limit = 1 - 2 * usual_margin(size)

    def tell(coins: Coins, draws: Draws, values: _Values) -> Coins:
        weight = weights.shared_by_rank(values, utilities)
        tangent = weight @ draws.points - weight.sum() * coins.eta
        deviation = jnp.sqrt((1 - coins.eta) * (1 + coins.eta))
        fisher_length = jnp.linalg.norm(tangent / deviation)
        unit = tangent / jnp.maximum(fisher_length, _ROUNDING)
        decay = coins.length / np.sqrt(size)
        path = (1 - decay) * coins.path + jnp.sqrt(decay * (2 - decay)) * unit / deviation
        normal = (1 - decay) ** 2 * coins.normal + decay * (2 - decay)
        length = coins.length * jnp.exp(decay * ((path @ path) / _PATIENCE - normal))
        eta = jnp.clip(coins.eta + coins.length * unit, -limit, limit)
        moved = Coins(eta, jnp.minimum(length, 1.0), path, normal)
        return jax.tree.map(lambda new, old: jnp.where(fisher_length > _ROUNDING, new, old), moved, coins)

    return _strategy(population, size, tell)


def coin_width(coins: Coins) -> Float[Array, ""]:
    """The largest probability of the less likely value, less what the margin always leaves."""
    free = (1 - jnp.abs(coins.eta)).max() / 2
    return jnp.maximum(free - usual_margin(len(coins.eta)), 0.0)


def _strategy(population: int, size: int, tell: Callable[[Coins, Draws, _Values], Coins]) -> Strategy:
    return Strategy(population, lambda: fair_coins(size), draw_coins(population), tell, coin_width, _center)


def _center(coins: Coins) -> Float[Array, " variable"]:
    return jnp.where(coins.eta < 0, -1.0, 1.0).astype(coins.eta.dtype)
