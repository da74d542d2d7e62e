"""From the values of a population to the weights of its points.

Only ranks count in information-geometric optimization [igo]: weight k goes to the k-th best point, points of
equal value share theirs, and values that are not numbers rank last. With weights that sum to zero the step
sum_i w_i (T(x_i) - eta) is a natural gradient with a baseline; with weights that sum to one it is a move
toward the mean of the selected points. `standardized` uses the values themselves.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_Values = Float[Array, " point"]


def shared_by_rank(values: _Values, weights: np.ndarray) -> _Values:
    """Each point's weight by its rank, the best first; ties share, and NaN is worse than all [igo eq. 14]."""
    clean = jnp.where(jnp.isnan(values), jnp.inf, values)
    ordered = jnp.sort(clean)
    below = jnp.searchsorted(ordered, clean, side="left")
    upto = jnp.searchsorted(ordered, clean, side="right")
    total = jnp.asarray(np.concatenate([[0.0], np.cumsum(weights)]), values.dtype)
    return (total[upto] - total[below]) / (upto - below).astype(values.dtype)


def standardized(values: _Values) -> _Values:
    """(mean - f) / (n sd): raw fitness with the mean as baseline, free of units; NaN gets zero."""
    good = jnp.isfinite(values)
    number = jnp.maximum(good.sum(), 1).astype(values.dtype)
    clean = jnp.where(good, values, 0.0)
    mean = clean.sum() / number
    gap = jnp.where(good, mean - clean, 0.0)
    spread = jnp.sqrt((gap**2).sum() / number)
    return jnp.where(spread > 0, gap / (number * jnp.where(spread > 0, spread, 1.0)), 0.0)


def logarithmic(population: int) -> np.ndarray:
    """The utilities of natural evolution strategies: they sum to zero [xnes]."""
    raised = np.maximum(0.0, np.log(population / 2 + 1) - np.log(np.arange(1, population + 1)))
    return raised / raised.sum() - 1 / population


def truncation(population: int, parents: int) -> np.ndarray:
    """1 / parents for the best, zero for the rest."""
    return np.where(np.arange(population) < parents, 1 / parents, 0.0)


def tournament(population: int) -> np.ndarray:
    """+1 for the best, -1 for the worst: the compact genetic algorithm for a population of two [cga]."""
    found = np.zeros(population)
    found[0], found[-1] = 1.0, -1.0
    return found


def recombination(population: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Weights of the better half and of the worse, effective parents [cmatutorial eq. 49-53]."""
    raw = np.log((population + 1) / 2) - np.log(np.arange(1, population + 1))
    positive, negative = np.maximum(raw, 0), np.minimum(raw, 0)
    positive /= positive.sum()
    negative /= max(-negative.sum(), 1e-300)
    return positive, negative, 1 / (positive**2).sum()
