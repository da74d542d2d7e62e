"""A Boltzmann machine as its user sees it: NumPy rows in, NumPy rows out; Bernoulli values are 0 and 1.

machine = TrainedBoltzmann.load("machine.npz")     # or natgrad.load(RUN).model
machine.log_likelihood(rows), machine.transform(rows), machine.sample(64)
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.errors import InputError
from natgrad.evaluate.notebook import model_html, model_text
from natgrad.layers import generator
from natgrad.models.rbm import files, gibbs, pseudo
from natgrad.models.rbm.likelihood import LogPartition, log_likelihoods, log_partition_of
from natgrad.models.rbm.machine import Boltzmann, bias_of, hidden_inputs, visible_inputs
from natgrad.models.rbm.partition import is_enumerable
from natgrad.models.rbm.units import BernoulliUnits, UnitRows
from natgrad.training.checks import check_drawn

TURNS = 1000  # from where chains start to where they are looked at


@dataclass(frozen=True, eq=False)
class TrainedBoltzmann:
    """A machine's parameters, the hidden states [hidden, chain] of its training's chains, if any."""

    parameters: Boltzmann
    chains: np.ndarray | None = None

    __repr__, _repr_html_ = model_text, model_html

    def log_likelihood(self, rows: np.ndarray, **options: Any) -> np.ndarray:
        """log p(v) of every row: exact where one side is small, otherwise by annealing (see `log_z`).

        There is a warning where annealing is not reliable.
        """
        found = self.log_z(rows, **options)
        found.warn()
        return log_likelihoods(self.parameters, self.coded(rows), found.log_z)

    def log_z(
        self,
        rows: np.ndarray | None = None,
        *,
        chains: int = 100,
        temperatures: int = 10_000,
        turns: int = TURNS,
        seed: int = 0,
    ) -> LogPartition:
        """log Z. For annealing, rows of data say where to begin: at their means, and in reverse at them."""
        model, key = self.parameters, generator.key(seed)
        at_least_one("chains", chains)
        if rows is None and not is_enumerable(model):
            raise InputError("annealing begins at the means of data, got no rows; give rows of training data")
        start = self.coded(rows) if rows is not None else jnp.zeros((model.sizes[0], 1))
        counts = {"chains": chains, "temperatures": temperatures, "turns": turns}
        return log_partition_of(key, model, self.base(start), self._own(start), **counts)

    def base(self, visible: UnitRows) -> jax.Array:
        """The biases of independent units with the means of rows."""
        units, means = self.parameters.visible_units, np.asarray(visible.mean(axis=1), np.float64)
        if isinstance(units, BernoulliUnits):
            means = (means - units.coding.low) / units.span
        return jnp.asarray(bias_of(units, means, visible.shape[1]), self.parameters.visible_bias.dtype)

    def pseudo_log_likelihood(self, rows: np.ndarray) -> np.ndarray:
        """The sum of log p(v_i | v without i) over the visible units of every row."""
        if not isinstance(self.parameters.visible_units, BernoulliUnits):
            raise InputError(
                "a pseudo-likelihood needs Bernoulli units, these are Gaussian; use log_likelihood"
            )
        return np.asarray(jax.jit(pseudo.pseudo_log_likelihood)(self.parameters, self.coded(rows)))

    def transform(self, rows: np.ndarray) -> np.ndarray:
        """The probability of every hidden unit to be on, [row, hidden]."""
        units = self.parameters.hidden_units
        means = units.mean(hidden_inputs(self.parameters, self.coded(rows)))
        return np.asarray(units.coding.on(means)).T

    def reconstruct(self, rows: np.ndarray) -> np.ndarray:
        """The means of the visible units given the means of the hidden ones."""
        above = self.parameters.hidden_units.mean(hidden_inputs(self.parameters, self.coded(rows)))
        return self._shown(self.parameters.visible_units.mean(visible_inputs(self.parameters, above)))

    def sample(self, number: int = 64, *, turns: int = TURNS, seed: int = 0) -> np.ndarray:
        """Rows at the end of chains, which start where those of the training ended, if there are any."""
        return self._shown(self._drawn(number, turns, seed).visible)

    def means(self, number: int = 64, *, turns: int = TURNS, seed: int = 0) -> np.ndarray:
        """The means of the visible units given the hidden states of the same chains."""
        hidden = self._drawn(number, turns, seed).hidden
        return self._shown(self.parameters.visible_units.mean(visible_inputs(self.parameters, hidden)))

    def save(self, path: str | Path) -> Path:
        """Write `weights` [visible, hidden], `visible_bias`, `hidden_bias` and the units as a .npz file."""
        return files.save_machine(path, self.parameters)

    @classmethod
    def load(cls, path: str | Path) -> "TrainedBoltzmann":
        """The machine of such a file."""
        return cls(files.load_machine(path))

    def coded(self, rows: np.ndarray) -> UnitRows:
        """Rows as the machine takes them: coded, units-major."""
        found = np.asarray(rows)
        if found.ndim != 2 or found.shape[1] != self.parameters.sizes[0] or not len(found):
            raise InputError(
                f"expected at least one row of {self.parameters.sizes[0]} values, got an array of shape "
                f"{found.shape}; reshape it"
            )
        values = jnp.asarray(found.T, self.parameters.visible_bias.dtype)
        units = self.parameters.visible_units
        if not isinstance(units, BernoulliUnits):
            if not np.isfinite(found).all():
                raise InputError("expected finite numbers, got NaN or infinity; remove or replace them")
            return values
        if not np.isin(found, (0, 1)).all():
            raise InputError("expected rows of 0 and 1 for Bernoulli units, got other values; round them")
        return units.coding.value(values, values.dtype)

    def _drawn(self, number: int, turns: int, seed: int) -> gibbs.Drawn:
        at_least_one("number", number)
        at_least_one("turns", turns)
        check_drawn(number, self.parameters)
        key_start, key_turns = jax.random.split(generator.key(seed))
        if self.chains is None:
            hidden = _independent(key_start, self.parameters, number)
        else:
            hidden = np.asarray(self.chains)[:, np.arange(number) % self.chains.shape[1]]
        return _turns(key_turns, self.parameters, hidden, turns)

    def _own(self, start: UnitRows) -> UnitRows:
        """Visible states to start reverse chains from: those of the training's chains, or rows."""
        if self.chains is None:
            return start
        hidden = jnp.asarray(self.chains)
        return _turns(generator.key(0), self.parameters, hidden, 1).visible

    def _shown(self, visible: UnitRows) -> np.ndarray:
        units = self.parameters.visible_units
        return np.asarray(units.coding.on(visible) if isinstance(units, BernoulliUnits) else visible).T


def at_least_one(name: str, value: int) -> None:
    """Refuse a number of nothing."""
    if value < 1:
        raise InputError(f"{name}: expected at least 1, got {value}")


_turns = jax.jit(gibbs.turns, static_argnums=3)
_independent = jax.jit(gibbs.independent, static_argnums=2)
