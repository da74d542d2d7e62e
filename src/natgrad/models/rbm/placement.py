"""Where the temperatures of annealing are needed: a short first run tells.

The log-weight of a chain is a sum over its moves, and a part of the path with n of them adds a variance of
about c / n. For a fixed number of moves the sum over parts is least with n in proportion to sqrt c. Near the
machine itself, where chains mix slowly, c is larger by orders of magnitude than elsewhere.

The first runs are independent of the estimate that follows, which stays unbiased for every path.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.models.rbm.annealed import Times, courses, equally_spaced
from natgrad.models.rbm.machine import Boltzmann

FIRST_RUNS, SHARE = 2, 8  # how many, and of how many times fewer moves than the estimate
FIRST_CHAINS = 20  # of a first run: it should be slow rather than wide, to see where chains hardly move
PATH_PARTS = 50  # of a path, whose variances are looked at
_FEWEST = 5 * PATH_PARTS  # moves of a first run; an estimate that has not four times as many does without
_EVEN = 0.1  # share of the moves that are placed evenly whatever was seen


def placed_temperatures(
    key: PRNGKeyArray, model: Boltzmann, base: Float[Array, " visible"], *, temperatures: int
) -> Times:
    """So many inverse temperatures from 0 to 1, closer where log-weights vary; evenly if they are few."""
    if temperatures < 4 * _FEWEST:
        return equally_spaced(temperatures, model)
    moves = max(_FEWEST, temperatures // SHARE)
    first = np.linspace(0, 1, moves + 1)
    for key_run in jax.random.split(key, FIRST_RUNS):
        seen = courses(key_run, model, base, _as_times(first, model), chains=FIRST_CHAINS)
        known = first
        first = closer(known, seen, moves)
    return _as_times(closer(known, seen, temperatures), model)


def closer(
    times: Float[np.ndarray, " temperature"], seen: Float[np.ndarray, "move chain"], temperatures: int
) -> Float[np.ndarray, " temperature"]:
    """So many temperatures, for log-weights `seen` along others: moves in proportion to deviations."""
    ends = np.linspace(0, len(seen), PATH_PARTS + 1).astype(int)
    totals = np.vstack([np.zeros(seen.shape[1]), seen])[ends]
    needed = np.diff(totals, axis=0).std(axis=1)
    even = np.diff(times[ends])
    density = (1 - _EVEN) * needed / needed.sum() + _EVEN * even if needed.sum() > 0 else even
    upto = np.concatenate([[0.0], np.cumsum(density)])
    return np.interp(np.linspace(0, 1, temperatures + 1), upto / upto[-1], times[ends])


def _as_times(times: Float[np.ndarray, " temperature"], model: Boltzmann) -> Array:
    return jnp.asarray(times, model.visible_bias.dtype)
