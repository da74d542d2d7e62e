"""The variational autoencoder: a latent vector, a network that generates data, one that recognizes it.

    p(x, z) = p(x | z) N(z; 0, I)                generation
    q(z | x) = N(z; m(x), diag(exp s(x)))        recognition    [vae eq. 9]

The visible units are Bernoulli, or Gaussian around the network's outputs with one variance for all of them.
A draw of q is m + exp(s/2) noise, so that derivatives go through it [vae eq. 4]. Rows come first; samples are
an axis of their own after them.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.devices import placed
from natgrad.layers.convolution import Convolutional, convolutional
from natgrad.layers.outputs import Output, halves, sigmoid, spherical
from natgrad.layers.perceptron import Activation, Perceptron, perceptron
from natgrad.layers.transposed import Transposed, transposed
from natgrad.tree import pytree, static
from natgrad.updates.parts import Part

Rows = Float[Array, "row visible"]
LatentRows = Float[Array, "row sample latent"]
GENERATION, RECOGNITION = Part(("generation", "noise")), Part(("recognition",))


@pytree
class Variational:
    """Both networks.

    Attributes:
        recognition: from data to means and log-variances of q, side by side.
        generation: from latent vectors to logits or means of the data.
        noise: the log-variance of Gaussian data, where it is learned.
        deviation: the standard deviation of Gaussian data, where it is fixed; Bernoulli data have neither.
        activation: of the hidden units; image: the sides of the pictures that filters look at.
    """

    recognition: Perceptron | Convolutional
    generation: Perceptron | Transposed
    noise: Float[Array, ""] | tuple[()] = ()
    deviation: float | None = static(default=None)
    activation: Activation = static(default=jnp.tanh)
    image: tuple[int, int] | None = static(default=None)

    @property
    def latent(self) -> int:
        """The size of a latent vector."""
        return _layers(self.generation)[0].weight.shape[1]

    @property
    def gaussian(self) -> bool:
        """Whether data are real numbers."""
        return self.deviation is not None or not isinstance(self.noise, tuple)

    @property
    def log_variance(self) -> Float[Array, ""]:
        """That of Gaussian data, fixed or learned."""
        if self.deviation is None:
            return jnp.asarray(self.noise)
        return jnp.asarray(2 * math.log(self.deviation), jax.tree.leaves(self.generation)[0].dtype)


class LatentNormal(NamedTuple):
    """q(z | x) of some rows: independent normal distributions."""

    mean: Float[Array, "row latent"]
    log_variance: Float[Array, "row latent"]

    def drawn(self, noise: LatentRows) -> LatentRows:
        """The draws that standard normal noise makes: ~ q(z | x)."""
        return self.mean[:, None] + jnp.exp(0.5 * self.log_variance)[:, None] * noise

    def log_prob(self, latent: LatentRows) -> Float[Array, "row sample"]:
        """log q(z | x)."""
        scaled = (latent - self.mean[:, None]) ** 2 * jnp.exp(-self.log_variance)[:, None]
        return -0.5 * (scaled + self.log_variance[:, None] + math.log(2 * math.pi)).sum(axis=2)

    def divergence(self) -> Float[Array, " row"]:
        """KL(q(z | x), p(z)) in closed form [vae app. B]."""
        variance = jnp.exp(self.log_variance)
        return 0.5 * (self.mean**2 + variance - 1 - self.log_variance).sum(axis=1)


def recognition_outputs(model: Variational, rows: Rows) -> Float[Array, "row parameter"]:
    """Means and log-variances of q, side by side."""
    if isinstance(model.recognition, Convolutional):
        pictures = rows.reshape(len(rows), 1, *(model.image or ()))
        return convolutional(model.activation)(model.recognition, pictures)
    return perceptron(model.activation)(model.recognition, rows)


def recognized(model: Variational, rows: Rows) -> LatentNormal:
    """q(z | x) of every row."""
    return LatentNormal(*halves(recognition_outputs(model, rows)))


def generation_outputs(model: Variational, latent: Float[Array, "... latent"]) -> Float[Array, "... visible"]:
    """The logits, or the means, of the data for latent vectors."""
    flat = latent.reshape(-1, latent.shape[-1])
    if isinstance(model.generation, Transposed):
        found = transposed(model.activation)(model.generation, flat)
    else:
        found = perceptron(model.activation)(model.generation, flat)
    return found.reshape(*latent.shape[:-1], -1)


def visible_output(model: Variational) -> Output:
    """p(x | z) as a distribution around the generation network's outputs."""
    return spherical(model.log_variance) if model.gaussian else sigmoid()


def log_visible(model: Variational, rows: Rows, latent: LatentRows) -> Float[Array, "row sample"]:
    """log p(x | z) of every draw."""
    outputs = generation_outputs(model, latent)
    return jax.vmap(visible_output(model).log_prob, (1, None), 1)(outputs, rows)


def log_prior(latent: LatentRows) -> Float[Array, "row sample"]:
    """log p(z)."""
    return -0.5 * (latent**2 + math.log(2 * math.pi)).sum(axis=2)


def log_ratios(model: Variational, rows: Rows, noise: LatentRows) -> Float[Array, "row sample"]:
    """log p(x, z) - log q(z | x) of the draws that noise makes: unnormalized importance weights."""
    posterior = recognized(model, rows)
    latent = posterior.drawn(noise)
    return log_visible(model, rows, latent) + log_prior(latent) - posterior.log_prob(latent)


def latent_noise(key: PRNGKeyArray, model: Variational, rows: Rows, samples: int) -> LatentRows:
    """Standard normal numbers for so many draws of every row."""
    return placed(jax.random.normal(key, (len(rows), samples, model.latent), rows.dtype), "rows", None, None)


def fantasies(key: PRNGKeyArray, model: Variational, number: int) -> tuple[Rows, Float[Array, "row latent"]]:
    """Data drawn from the model, and the latent vectors that they were drawn from."""
    key_latent, key_visible = jax.random.split(key)
    kind = jax.tree.leaves(model.generation)[0].dtype
    latent = jax.random.normal(key_latent, (number, model.latent), kind)  # ~ p(z)
    sample = visible_output(model).sample
    assert sample is not None
    return sample(key_visible, generation_outputs(model, latent)), latent  # ~ p(x | z)


def visible_means(model: Variational, latent: Float[Array, "... latent"]) -> Float[Array, "... visible"]:
    """The means of the data given latent vectors."""
    outputs = generation_outputs(model, latent)
    return outputs if model.gaussian else jax.nn.sigmoid(outputs)


def _layers(network: Perceptron | Transposed) -> Perceptron:
    return network.layers if isinstance(network, Transposed) else network
