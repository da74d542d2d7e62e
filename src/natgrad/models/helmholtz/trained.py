"""A trained Helmholtz machine as its user sees it: NumPy in, NumPy out, values in {0,1}."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.errors import InputError, check_counts
from natgrad.evaluate.completions import Completions, checked_mask
from natgrad.evaluate.notebook import model_html, model_text
from natgrad.layers import generator
from natgrad.models.helmholtz import exact, export
from natgrad.models.helmholtz import inpainting as inpaint
from natgrad.models.helmholtz import likelihood as importance
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.likelihood import Likelihood
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.models.helmholtz.posterior import Posterior, posterior
from natgrad.training.checks import check_drawn


@dataclass(frozen=True)
class Trained:
    """A model's parameters and what one can ask of it. Rows are arrays [row, visible] in [0, 1]."""

    parameters: Helmholtz

    __repr__, _repr_html_ = model_text, model_html

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
        check_counts(samples=samples)
        return importance.log_likelihood(
            generator.key(seed), self.parameters, self.coded(rows), samples=samples, memory_mb=memory_mb
        )

    def exact_log_likelihood(self, rows: np.ndarray) -> np.ndarray:
        """log p(x) of every row by enumeration, for small machines."""
        return np.asarray(exact.log_likelihood(self.parameters, self.coded(rows)))

    def posterior(self, rows: np.ndarray, *, samples: int = 100, seed: int = 0) -> list[np.ndarray]:
        """The posterior mean of every hidden unit, importance-sampled: an array [row, unit] per layer."""
        return list(self.inferred(rows, samples=samples, seed=seed).hidden)

    def reconstruct(self, rows: np.ndarray, *, samples: int = 100, seed: int = 0) -> np.ndarray:
        """E[p(x' | h) | x], the posterior sent back through generation: pixel means [row, visible]."""
        return self.inferred(rows, samples=samples, seed=seed).visible

    def inferred(self, rows: np.ndarray, *, samples: int = 100, seed: int = 0) -> Posterior:
        """All that samples of the hidden units say of rows; each row's answer is its own."""
        check_counts(samples=samples)
        return posterior(generator.key(seed), self.parameters, self.coded(rows), samples=samples)

    def inpaint(
        self,
        rows: np.ndarray,
        mask: np.ndarray,
        *,
        number: int = 1,
        steps: int = 100,
        samples: int = 10,
        seed: int = 0,
    ) -> Completions:
        """Draw the hidden pixels of binary rows from p(x_hidden | x_known); the mask is true where hidden.

        `number` completions of every row, each at the end of a chain of its own of so many `steps` with
        `samples` candidates each. The mask is [visible] or [row, visible].

        Example:
            done = run.model.inpaint(rows, mask, number=8)
            done.samples[0]  # eight completions of the first row, [8, visible]
        """
        check_counts(number=number, steps=steps, samples=samples)
        visible, hide = self._chains(rows, mask, number)
        key = generator.key(seed)
        found = inpaint.complete(key, self.parameters, visible, hide, steps=steps, samples=samples)
        drawn = np.asarray(self.parameters.coding.on(found.visible), np.uint8)
        means = np.where(np.asarray(hide), found.means, drawn)
        apart = (-1, number, len(drawn))
        moved = np.asarray(found.moves).reshape(-1, number).mean(axis=1) / steps
        return Completions(drawn.T.reshape(apart), means.T.reshape(apart), moved)

    def save(self, path: str | Path) -> Path:
        """Write the parameters as one safetensors file, readable without natgrad (docs/export.md)."""
        return export.save_model(path, self.parameters)

    @classmethod
    def load(cls, path: str | Path) -> "Trained":
        """The model of a file that `save` wrote."""
        return cls(export.load_model(path))

    def _chains(self, rows: np.ndarray, mask: np.ndarray, number: int) -> tuple[Array, Array]:
        """Rows and mask, `number` times each, units-major."""
        visible = self.coded(rows)
        if not np.isin(np.asarray(rows), (0, 1)).all():
            raise InputError("expected rows of 0 and 1 to complete, got values in between; round them")
        hide = checked_mask(mask, *visible.shape[::-1])
        return jnp.repeat(visible, number, axis=1), jnp.asarray(np.repeat(hide, number, axis=0).T)

    def _drawn(self, number: int, seed: int) -> helmholtz.Pass:
        check_counts(number=number)
        check_drawn(number, self.parameters)
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
