"""log Z of a machine by the best means there are, and what it says about rows.

Exact where one side is small enough to enumerate; otherwise annealed importance sampling, forward and in
reverse, put together, with a warning where the two do not agree.
"""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from natgrad.models.rbm import annealed, gibbs
from natgrad.models.rbm.annealed import Annealed
from natgrad.models.rbm.bridge import bridged
from natgrad.models.rbm.machine import Boltzmann, hidden_inputs, negative_free_energy
from natgrad.models.rbm.partition import exact_log_z, is_enumerable
from natgrad.models.rbm.placement import placed_temperatures
from natgrad.models.rbm.units import PerRow, UnitRows

ROWS_AT_ONCE = 1000  # rows of a product


class LogPartition(NamedTuple):
    """log Z; where it is not exact, its standard error and the two estimates that it comes from."""

    log_z: float
    se: float = 0.0
    forward: Annealed | None = None
    reverse: Annealed | None = None

    @property
    def doubt(self) -> str:
        """A sentence where it is not reliable, or nothing."""
        if self.forward is None or self.reverse is None:
            return ""
        return annealed.disagreement(self.forward, self.reverse)

    def warn(self) -> None:
        """Tell the caller's caller of a doubt, if there is one."""
        if self.doubt:
            warnings.warn(self.doubt, stacklevel=3)

    def facts(self) -> dict[str, Any]:
        """What a reader should know of it, and of how it was found."""
        if self.forward is None or self.reverse is None:
            return {"likelihood": "exact", "log_z": self.log_z}
        return {
            "likelihood": "annealed importance sampling",
            "log_z": self.log_z,
            "log_z_se": self.se,
            "log_z_low": self.log_z - annealed.ERRORS * self.se,
            "log_z_high": self.log_z + annealed.ERRORS * self.se,
            "log_z_forward": float(self.forward.log_z),
            "log_z_forward_se": float(self.forward.se),
            "log_z_reverse": float(self.reverse.log_z),
            "log_z_reverse_se": float(self.reverse.se),
            "effective_chains": float(self.forward.effective),
        } | ({"warning": self.doubt} if self.doubt else {})


def log_partition_of(
    key: PRNGKeyArray,
    model: Boltzmann,
    base: Array,
    start: UnitRows,
    *,
    chains: int,
    temperatures: int,
    turns: int,
) -> LogPartition:
    """log Z. Reverse chains start after so many turns of Gibbs sampling from given visible states."""
    if is_enumerable(model):
        return LogPartition(float(_exact(model)))
    key_forward, key_turns, key_reverse, key_times = jax.random.split(key, 4)
    times = placed_temperatures(key_times, model, base, temperatures=temperatures)
    forward = annealed.anneal(key_forward, model, base, times, chains=chains)
    own = settled(key_turns, model, start, chains=chains, turns=turns)
    reverse = annealed.anneal_back(key_reverse, model, base, times, own)
    return LogPartition(*bridged(forward, reverse), forward, reverse)


def settled(key: PRNGKeyArray, model: Boltzmann, start: UnitRows, *, chains: int, turns: int) -> UnitRows:
    """Visible states of so many chains, after so many turns from given visible states."""
    chosen = start[:, jnp.arange(chains) % start.shape[1]]
    return _settled(key, model, chosen, turns).visible if turns else chosen


def log_likelihoods(model: Boltzmann, rows: UnitRows, log_z: float) -> np.ndarray:
    """log p(v) of every row, for a known log Z."""
    portions = range(0, rows.shape[1], ROWS_AT_ONCE)
    found = [np.asarray(_free(model, rows[:, at : at + ROWS_AT_ONCE]), np.float64) for at in portions]
    return np.concatenate(found) - log_z


def with_error(values: np.ndarray) -> tuple[float, float]:
    """The mean over rows and its standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(values.mean()), float(error)


_exact = jax.jit(exact_log_z)


@jax.jit
def _free(model: Boltzmann, rows: UnitRows) -> PerRow:
    return negative_free_energy(model, rows)


def _from_visible(key: PRNGKeyArray, model: Boltzmann, visible: UnitRows, number: int) -> gibbs.Drawn:
    key_start, key_turns = jax.random.split(key)
    hidden = model.hidden_units.drawn(key_start, hidden_inputs(model, visible))
    return gibbs.turns(key_turns, model, hidden, number)


_settled = jax.jit(_from_visible, static_argnums=3)
