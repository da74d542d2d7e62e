"""A strategy over {-1, +1}^n with interactions: annealing along the natural gradient in theta.

The natural gradient in theta, Cov(T, T)^-1 Cov(f, T), is the least-squares fit of f by the statistics
[slides]. Fits gather evidence over generations, with forgetting. Where f lies in the span of T the fit is
exact, theta goes to -beta f, and the flow's limit is the global minimum [foga2015]. A step has a fixed Fisher
length, a fixed number of standard deviations of the fitted f. Points are Gibbs chains that continue.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.families.interactions import Interactions, gibbs
from natgrad.relax.strategy import Draws, Strategy

_SWEEPS, LENGTH, KEEP = 4, 0.3, 0.97
RIDGE, _ROUNDING = 1e-6, 1e-12
_Values = Float[Array, " point"]


class MarkovField(NamedTuple):
    """theta, the chains, and the sums of the running fit: weight, T, T T^T, f, f T."""

    theta: Float[Array, " parameter"]
    chains: Float[Array, "point variable"]
    weight: Float[Array, ""]
    first: Float[Array, " parameter"]
    second: Float[Array, "parameter parameter"]
    level: Float[Array, ""]
    cross: Float[Array, " parameter"]
    width: Float[Array, ""]


def annealed(family: Interactions, population: int) -> Strategy:
    """Natural-gradient annealing over a Markov random field."""
    size, parameters = family.size, family.parameters

    def init() -> MarkovField:
        bits = np.random.default_rng(0).integers(0, 2, (population, size))
        zero, vector = jnp.zeros(()), jnp.zeros(parameters)
        square = jnp.zeros((parameters, parameters))
        return MarkovField(
            vector, jnp.asarray(2.0 * bits - 1), zero, vector, square, zero, vector, jnp.ones(())
        )

    def ask(key: PRNGKeyArray, field: MarkovField) -> Draws:
        chains = gibbs(key, family, field.theta, field.chains, _SWEEPS)
        return Draws(chains)  # ~ p(x; theta), nearly: the chains continue

    def tell(field: MarkovField, draws: Draws, values: _Values) -> MarkovField:
        field = _gather(field, family.statistics(draws.points), values)
        slopes = _fit(field)
        fitted = family.statistics(draws.points) @ slopes
        spread = jnp.std(fitted)
        moved = field.theta - LENGTH / jnp.maximum(spread, _ROUNDING) * slopes
        theta = jnp.where(spread > _ROUNDING, moved, field.theta)
        left = 1 - jnp.abs(draws.points.mean(axis=0))
        return field._replace(theta=theta, chains=draws.points, width=left.max())

    return Strategy(population, init, ask, tell, lambda field: field.width, _center)


def _gather(field: MarkovField, statistics: Array, values: _Values) -> MarkovField:
    """Add a generation to the sums, forgetting a little of the past; what is not a number is left out."""
    good = jnp.isfinite(values)
    clean = jnp.where(good, values, 0.0)
    kept = statistics * good[:, None].astype(values.dtype)
    return field._replace(
        weight=KEEP * field.weight + good.sum().astype(values.dtype),
        first=KEEP * field.first + kept.sum(axis=0),
        second=KEEP * field.second + kept.T @ kept,
        level=KEEP * field.level + clean.sum(),
        cross=KEEP * field.cross + clean @ kept,
    )


def _fit(field: MarkovField) -> Array:
    """Cov(T, T)^-1 Cov(f, T) of all that was gathered, with a ridge."""
    weight = jnp.maximum(field.weight, 1.0)
    mean = field.first / weight
    fisher = field.second / weight - jnp.outer(mean, mean)
    slope = field.cross / weight - mean * field.level / weight
    return jax.scipy.linalg.solve(
        fisher + RIDGE * jnp.eye(len(mean), dtype=mean.dtype), slope, assume_a="pos"
    )


def _center(field: MarkovField) -> Float[Array, " variable"]:
    return jnp.where(field.chains.mean(axis=0) < 0, -1.0, 1.0).astype(field.chains.dtype)
