"""Importance-sampled log-likelihoods of a variational autoencoder, in bounded memory.

    log p(x) ~ log (1/N) sum_s w_s,   w_s = p(x, z_s) / q(z_s | x),   z_s ~ q(z | x)

Weights have no variance where q is narrower than about half of the posterior's variance, and the estimate is
then too low without showing it: `natgrad.evaluate.weights` looks at their tails.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad.evaluate import weights
from natgrad.evaluate.portions import over_rows, portion_sizes
from natgrad.evaluate.weights import Likelihood, LogWeights, Running
from natgrad.models.vae.machine import Rows, Variational, latent_noise, log_ratios
from natgrad.models.vae.objectives import LatentDraws, Lesson
from natgrad.training import compile as compilation

_AT_ONCE = 256  # rows of a bound


def importance_likelihood(
    key: PRNGKeyArray,
    model: Variational,
    rows: Rows,
    *,
    samples: int,
    memory_mb: float = 64.0,
    tails: bool = True,
) -> Likelihood:
    """The likelihood of rows, within about `memory_mb` of memory.

    Without `tails` it costs a little less, and `pareto_k` is None.
    """
    size, chunk = portion_sizes(4 * rows.shape[1], len(rows), samples, memory_mb)
    kept = weights.kept_for(samples) if tails else 0

    def estimate(own: PRNGKeyArray, portion: Float[Array, "visible row"]) -> Running:
        return _weight_sums(own, model, portion, samples, chunk=chunk, kept=kept)

    return weights.likelihood(over_rows(estimate, key, rows.T, size, samples), samples)


@partial(jax.jit, static_argnames=("chunk", "kept"), compiler_options=compilation.WIDE)
def _weight_sums(
    key: PRNGKeyArray,
    model: Variational,
    visible: Float[Array, "visible row"],
    samples: Int[Array, ""],
    *,
    chunk: int,
    kept: int,
) -> Running:
    """The running sums of every row's weights, `chunk` samples at a time."""

    def draw(turn: Int[Array, ""]) -> LogWeights:
        noise = latent_noise(jax.random.fold_in(key, turn), model, visible.T, chunk)
        return log_ratios(model, visible.T, noise)  # ~ q(z | x)

    return weights.streamed(draw, samples, chunk=chunk, kept=kept)


@partial(jax.jit, static_argnames=("lesson", "samples"))
def mean_loss(
    key: PRNGKeyArray, lesson: Lesson, model: Variational, rows: Rows, *, samples: int
) -> Float[Array, ""]:
    """A bound's loss, the mean over rows, some at a time."""

    def one(pair: tuple[PRNGKeyArray, Array]) -> Float[Array, ""]:
        own, row = pair
        noise = latent_noise(own, model, row[None], samples)
        return lesson(model, LatentDraws(row[None], noise))[0]

    keys = jax.random.split(key, len(rows))
    return jnp.mean(jax.lax.map(one, (keys, rows), batch_size=min(_AT_ONCE, len(rows))))
