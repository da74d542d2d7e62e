"""What is looked at in training: cheap figures of held-out rows, on rows and units that stay the same.

A machine that is small enough is judged by its exact likelihood. Of others the pseudo-likelihood is estimated
from some units of every row; annealing only if a config asks for it.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from natgrad.data import Dataset
from natgrad.data.batches import binary_rows
from natgrad.models.rbm import annealed
from natgrad.models.rbm.likelihood import log_likelihoods, with_error
from natgrad.models.rbm.machine import Boltzmann, hidden_inputs
from natgrad.models.rbm.partition import exact_log_z, smaller_side
from natgrad.models.rbm.placement import placed_temperatures
from natgrad.models.rbm.pseudo import proxy
from natgrad.models.rbm.units import BernoulliUnits, UnitRows

CHEAP = 2**24  # sums over the larger side, for all states of the smaller, that every evaluation may make
UNITS = 20  # of every row, that a pseudo-likelihood is estimated from
CHAINS_OF_MONITOR = 100


class HeldOut:
    """Measures machines on fixed validation and test rows."""

    def __init__(self, key: PRNGKeyArray, settings: Any, dataset: Dataset, base: np.ndarray) -> None:
        self.key, self.temperatures, self.base = key, settings.evaluation.temperatures, base
        limit, seed = settings.evaluation.rows, settings.data.split_seed
        self.parts = {name: binary_rows(dataset, name, seed=seed, limit=limit) for name in ("valid", "test")}

    def measure(self, model: Boltzmann) -> dict[str, Any]:
        """One row's worth of figures: pseudo-likelihoods, and likelihoods if log Z is known."""
        row: dict[str, Any] = {}
        rows = {name: coded_rows(model, part) for name, part in self.parts.items()}
        for name, part in rows.items():
            row[f"{name}_pseudo"] = float(_pseudo(self.key, model, part))
        row["valid_loss"] = -row["valid_pseudo"]
        if (known := self._log_z(model)) is None:
            return row
        row |= known
        valid, _ = with_error(log_likelihoods(model, rows["valid"], row["log_z"]))
        test, error = with_error(log_likelihoods(model, rows["test"], row["log_z"]))
        return row | {"valid_loss": -valid, "valid_ll": valid, "test_ll": test, "test_ll_se": error}

    def _log_z(self, model: Boltzmann) -> dict[str, float] | None:
        if is_cheap(model):
            return {"log_z": float(_exact_log_z(model))}
        if not self.temperatures:
            return None
        base = jnp.asarray(self.base, model.visible_bias.dtype)
        key_times, key_chains = jax.random.split(self.key)
        times = placed_temperatures(key_times, model, base, temperatures=self.temperatures)
        found = annealed.anneal(key_chains, model, base, times, chains=CHAINS_OF_MONITOR)
        return {"log_z": float(found.log_z), "log_z_se": float(found.se)}


def is_cheap(model: Boltzmann) -> bool:
    """Whether log Z takes little time beside a chunk of steps."""
    side = smaller_side(model)
    return side <= CHEAP.bit_length() and 2**side * max(model.sizes) <= CHEAP


def coded_rows(model: Boltzmann, rows: Array) -> UnitRows:
    """Rows [visible, row] of 0 and 1, or real ones, as a machine takes them."""
    values, units = rows.astype(model.visible_bias.dtype), model.visible_units
    return units.coding.value(values, values.dtype) if isinstance(units, BernoulliUnits) else values


_exact_log_z = jax.jit(exact_log_z)


@jax.jit
def _pseudo(key: PRNGKeyArray, model: Boltzmann, rows: UnitRows) -> Array:
    inputs = hidden_inputs(model, rows)
    number = UNITS if isinstance(model.visible_units, BernoulliUnits) else 1
    look = partial(proxy, model=model, visible=rows, inputs=inputs)
    return jax.lax.map(lambda k: look(k).mean(), jax.random.split(key, number)).mean()
