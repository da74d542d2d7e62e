"""A trained variational autoencoder as its user sees it: NumPy rows in, NumPy rows out."""

import warnings
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.errors import InputError, check_counts
from natgrad.evaluate import trust
from natgrad.evaluate.completions import Completions, checked_mask
from natgrad.evaluate.notebook import model_html, model_text
from natgrad.evaluate.weights import Likelihood, in_portions
from natgrad.layers import generator
from natgrad.models.vae.inpainting import completed
from natgrad.models.vae.likelihood import (
    PORTION_OF_ROWS,
    EvidenceBound,
    evidence_bound,
    importance_likelihood,
)
from natgrad.models.vae.machine import Variational, fantasies, recognized, visible_means
from natgrad.training.checks import check_drawn


@dataclass(frozen=True, eq=False)
class TrainedVariational:
    """Both networks and what one can ask of them.

    Rows are [row, visible]: values in [0, 1] for Bernoulli data, any finite numbers for Gaussian.
    """

    parameters: Variational
    visible: int

    __repr__, _repr_html_ = model_text, model_html

    def sample(self, number: int = 64, *, seed: int = 0) -> np.ndarray:
        """Rows drawn from the model, [number, visible]."""
        return np.asarray(self._drawn(number, seed)[0])

    def means(self, number: int = 64, *, seed: int = 0) -> np.ndarray:
        """The means from which `sample` with the same seed was drawn."""
        return self.decode(np.asarray(self._drawn(number, seed)[1]))

    def encode(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The means and standard deviations of q(z | x), each [row, latent]."""
        mean, log_variance = self._in_portions(_encoded, self.inputs(rows))
        return mean, np.exp(0.5 * log_variance)

    def decode(self, latent: np.ndarray) -> np.ndarray:
        """The means of the data given latent vectors, [row, visible]."""
        found = np.asarray(latent)
        if found.ndim != 2 or found.shape[1] != self.parameters.latent or not len(found):
            raise InputError(
                f"expected at least one row of {self.parameters.latent} latent values, got an array of shape "
                f"{found.shape}; reshape it"
            )
        if not np.isfinite(found).all():
            raise InputError("expected finite latent values, got NaN or infinity; remove or replace them")
        return self._in_portions(_decoded, jnp.asarray(found, self._kind))

    def reconstruct(self, rows: np.ndarray, *, seed: int = 0) -> np.ndarray:
        """The mean of q(z | x) sent back through generation, [row, visible]."""
        del seed
        return self.decode(self.encode(rows)[0])

    def elbo(
        self, rows: np.ndarray, *, samples: int = 10, seed: int = 0, memory_mb: float = 64.0
    ) -> EvidenceBound:
        """The evidence lower bound of rows, in nats, and its parts."""
        key = generator.key(seed)
        return evidence_bound(key, self.parameters, self.inputs(rows), samples=samples, memory_mb=memory_mb)

    def log_likelihood(
        self, rows: np.ndarray, *, samples: int = 1000, seed: int = 0, memory_mb: float = 64.0
    ) -> Likelihood:
        """The importance-sampled log-likelihood of rows, in nats; a warning where it is not reliable.

        With few samples it is, on average, the importance-weighted bound.
        """
        key = generator.key(seed)
        found = importance_likelihood(
            key, self.parameters, self.inputs(rows), samples=samples, memory_mb=memory_mb
        )
        if samples > 1 and (doubts := trust.warnings(found, "the likelihood", "mc_se")):
            warnings.warn(doubts[0], stacklevel=2)
        return found

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
        """Draw the hidden values of rows from p(x_hidden | x_known); the mask is true where hidden.

        `number` completions of every row, each at the end of a chain of its own of so many `steps` with
        `samples` candidates each. The mask is [visible] or [row, visible].

        Example:
            done = run.model.inpaint(rows, mask, number=8)
            done.samples[0]  # eight completions of the first row, [8, visible]
        """
        check_counts(number=number, steps=steps, samples=samples)
        known = self.inputs(rows)
        hide = jnp.asarray(np.repeat(checked_mask(mask, *known.shape), number, axis=0))
        counts = {"steps": steps, "samples": samples}
        found = completed(
            generator.key(seed), self.parameters, jnp.repeat(known, number, axis=0), hide, **counts
        )
        drawn, apart = np.asarray(found.visible), (-1, number, self.visible)
        means = np.where(np.asarray(hide), found.means, drawn)
        moved = np.asarray(found.moves).reshape(-1, number).mean(axis=1) / steps
        return Completions(drawn.reshape(apart), means.reshape(apart), moved)

    def inputs(self, rows: np.ndarray) -> Float[Array, "row visible"]:
        """Rows as the networks take them."""
        found = np.asarray(rows, np.float64)
        if found.ndim != 2 or found.shape[1] != self.visible or not len(found):
            raise InputError(
                f"expected at least one row of {self.visible} values, got an array of shape {found.shape}; "
                "reshape it"
            )
        if not np.isfinite(found).all():
            raise InputError("expected finite numbers, got NaN or infinity; remove or replace them")
        if not self.parameters.gaussian and (found.min() < 0 or found.max() > 1):
            raise InputError(
                f"expected values in [0, 1], got {found.min()} to {found.max()}; rescale the rows"
            )
        return jnp.asarray(found, self._kind)

    @property
    def _kind(self) -> jnp.dtype:
        return jax.tree.leaves(self.parameters)[0].dtype

    def _in_portions(self, network: jax.stages.Wrapped, rows: Array) -> np.ndarray:
        """What a network makes of rows, always as many at a time: a row's answer is its own."""
        return in_portions(
            lambda key, some: network(self.parameters, some), generator.key(0), rows, PORTION_OF_ROWS
        )

    def _drawn(self, number: int, seed: int) -> tuple[Array, Array]:
        check_counts(number=number)
        check_drawn(number, self.parameters)
        return _fantasies(generator.key(seed), self.parameters, number)


_encoded = jax.jit(lambda model, rows: tuple(recognized(model, rows)))
_decoded = jax.jit(visible_means)


@partial(jax.jit, static_argnums=2)
def _fantasies(key: PRNGKeyArray, model: Variational, number: int) -> tuple[Array, Array]:
    return fantasies(key, model, number)
