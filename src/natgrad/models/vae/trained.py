"""A trained variational autoencoder as its user sees it: NumPy rows in, NumPy rows out."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.errors import InputError
from natgrad.evaluate.weights import Likelihood
from natgrad.layers import generator
from natgrad.models.vae.likelihood import importance_likelihood, mean_loss
from natgrad.models.vae.machine import Variational, fantasies, recognized, visible_means
from natgrad.models.vae.objectives import elbo_loss


@dataclass(frozen=True, eq=False)
class TrainedVariational:
    """Both networks and what one can ask of them.

    Rows are [row, visible]: values in [0, 1] for Bernoulli data, any finite numbers for Gaussian.
    """

    parameters: Variational
    visible: int

    def sample(self, number: int = 64, *, seed: int = 0) -> np.ndarray:
        """Rows drawn from the model, [number, visible]."""
        return np.asarray(self._drawn(number, seed)[0])

    def means(self, number: int = 64, *, seed: int = 0) -> np.ndarray:
        """The means from which `sample` with the same seed was drawn."""
        return np.asarray(_means(self.parameters, self._drawn(number, seed)[1]))

    def transform(self, rows: np.ndarray) -> np.ndarray:
        """The means of q(z | x), [row, latent]."""
        return self.posterior(rows)[0]

    def posterior(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The means and standard deviations of q(z | x), each [row, latent]."""
        found = _recognized(self.parameters, self.inputs(rows))
        return np.asarray(found.mean), np.exp(0.5 * np.asarray(found.log_variance))

    def inverse_transform(self, latent: np.ndarray) -> np.ndarray:
        """The means of the data given latent vectors, [row, visible]."""
        found = np.asarray(latent)
        if found.ndim != 2 or found.shape[1] != self.parameters.latent or not len(found):
            raise InputError(
                f"expected at least one row of {self.parameters.latent} latent values, got an array of shape "
                f"{found.shape}; reshape it"
            )
        if not np.isfinite(found).all():
            raise InputError("expected finite latent values, got NaN or infinity; remove or replace them")
        return np.asarray(_means(self.parameters, jnp.asarray(found, self._kind)))

    def reconstruct(self, rows: np.ndarray, *, seed: int = 0) -> np.ndarray:
        """The mean of q(z | x) sent back through generation, [row, visible]."""
        del seed
        return self.inverse_transform(self.transform(rows))

    def elbo(self, rows: np.ndarray, *, samples: int = 10, seed: int = 0) -> float:
        """The evidence lower bound, the mean over rows, in nats."""
        if samples < 1:
            raise InputError(f"samples: expected at least 1, got {samples}")
        key = generator.key(seed)
        return -float(mean_loss(key, elbo_loss, self.parameters, self.inputs(rows), samples=samples))

    def log_likelihood(
        self, rows: np.ndarray, *, samples: int = 1000, seed: int = 0, memory_mb: float = 64.0
    ) -> Likelihood:
        """The importance-sampled log-likelihood of rows, in nats."""
        return importance_likelihood(
            generator.key(seed), self.parameters, self.inputs(rows), samples=samples, memory_mb=memory_mb
        )

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

    def _drawn(self, number: int, seed: int) -> tuple[Array, Array]:
        if number < 1:
            raise InputError(f"number: expected at least 1 sample, got {number}")
        return _fantasies(generator.key(seed), self.parameters, number)


_recognized = jax.jit(recognized)
_means = jax.jit(visible_means)


@partial(jax.jit, static_argnums=2)
def _fantasies(key: PRNGKeyArray, model: Variational, number: int) -> tuple[Array, Array]:
    return fantasies(key, model, number)
