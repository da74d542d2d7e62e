"""A trained Helmholtz machine as its user sees it: NumPy in, NumPy out, values in {0,1}."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad import generator
from natgrad.errors import InputError
from natgrad.evaluate import exact, importance
from natgrad.evaluate.importance import Likelihood
from natgrad.models import helmholtz
from natgrad.models.helmholtz import Helmholtz


@dataclass(frozen=True)
class Trained:
    """A model's parameters and what one can ask of it. Rows are arrays [row, visible] in [0, 1]."""

    parameters: Helmholtz

    def sample(self, number: int = 64, *, seed: int = 0) -> np.ndarray:
        """Binary rows drawn from the model, [number, visible]."""
        drawn = self._drawn(number, seed)
        return np.asarray(self.parameters.coding.on(drawn.values[0][:, 0]), np.uint8).T

    def means(self, number: int = 64, *, seed: int = 0) -> np.ndarray:
        """The pixel means from which `sample` with the same seed was drawn."""
        drawn = self._drawn(number, seed)
        return np.asarray(jax.nn.sigmoid(drawn.generation[0][:, 0])).T

    def log_likelihood(
        self, rows: np.ndarray, *, samples: int = 1000, seed: int = 0, memory_mb: float = 64.0
    ) -> Likelihood:
        """The importance-sampled log-likelihood of rows, in nats."""
        return importance.log_likelihood(
            generator.key(seed), self.parameters, self.coded(rows), samples=samples, memory_mb=memory_mb
        )

    def exact_log_likelihood(self, rows: np.ndarray) -> np.ndarray:
        """log p(x) of every row by enumeration, for small machines."""
        return np.asarray(exact.log_likelihood(self.parameters, self.coded(rows)))

    def posterior(self, rows: np.ndarray, *, samples: int = 100, seed: int = 0) -> list[np.ndarray]:
        """The posterior mean of every hidden unit, importance-sampled: an array [row, unit] per layer."""
        if samples < 1:
            raise InputError(f"samples: expected at least 1, got {samples}")
        model = self.parameters
        drawn = helmholtz.wake(generator.key(seed), model, self.coded(rows), samples)
        weights = jax.nn.softmax(helmholtz.log_weights(model, drawn), axis=0)  # [nrws eq. 9]
        return [np.asarray((weights * model.coding.on(value)).sum(axis=1)).T for value in drawn.values[1:]]

    def _drawn(self, number: int, seed: int) -> helmholtz.Pass:
        if number < 1:
            raise InputError(f"number: expected at least 1 sample, got {number}")
        return _dream(generator.key(seed), self.parameters, number)

    def coded(self, rows: np.ndarray) -> Float[Array, "visible row"]:
        """Rows in [0, 1] as the model takes them: coded, units-major."""
        rows = np.asarray(rows, np.float64)
        width = self.parameters.sizes[0]
        if rows.ndim != 2 or rows.shape[1] != width or not len(rows):
            raise InputError(
                f"expected at least one row of {width} values, got an array of shape {rows.shape}; reshape it"
            )
        if not np.isfinite(rows).all() or rows.min() < 0 or rows.max() > 1:
            raise InputError(f"expected values in [0, 1], got {rows.min()} to {rows.max()}; rescale the rows")
        values = jnp.asarray(rows.T, self.parameters.prior.dtype)
        return self.parameters.coding.value(values, values.dtype)


@partial(jax.jit, static_argnums=2)
def _dream(key: PRNGKeyArray, model: Helmholtz, number: int) -> helmholtz.Pass:
    return helmholtz.dream(key, model, 1, number)
