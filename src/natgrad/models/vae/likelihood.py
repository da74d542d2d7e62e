"""Importance-sampled log-likelihoods and bounds of a variational autoencoder, in bounded memory.

    log p(x) ~ log (1/N) sum_s w_s,   w_s = p(x, z_s) / q(z_s | x),   z_s ~ q(z | x)

Weights have no variance where q is narrower than about half of the posterior's variance, and the estimate is
then too low without showing it: `natgrad.evaluate.weights` looks at their tails. On average the estimate is
the importance-weighted bound with N samples, and never above log p(x) [iwae eq. 8].
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad.errors import check_counts
from natgrad.evaluate import weights
from natgrad.evaluate.weights import Likelihood, LogWeights, Running, in_portions, over_rows, portion_sizes
from natgrad.layers.transposed import Transposed
from natgrad.models.vae.machine import (
    Rows,
    Variational,
    latent_noise,
    log_ratios,
    log_visible,
    recognized,
)
from natgrad.models.vae.objectives import LatentDraws, Lesson
from natgrad.training import compile as compilation

PORTION_OF_ROWS = 256  # rows at a time, at most


class EvidenceBound(NamedTuple):
    """The evidence lower bound of some rows, in nats: its mean, its standard error, and its parts by row.

    `reconstruction` is E_q log p(x | z), from samples; `divergence` is KL(q(z | x), p(z)), exact.
    """

    mean: float
    se: float
    samples: int
    rows: np.ndarray
    reconstruction: np.ndarray
    divergence: np.ndarray


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
    check_counts(samples=samples)
    size, chunk = portion_sizes(_stored(model, rows), len(rows), samples, memory_mb)
    kept = weights.kept_for(samples) if tails else 0

    def estimate(own: PRNGKeyArray, portion: Float[Array, "visible row"]) -> Running:
        return _weight_sums(own, model, portion, samples, chunk=chunk, kept=kept)

    return weights.likelihood(over_rows(estimate, key, rows.T, size, samples), samples)


def row_likelihoods(
    key: PRNGKeyArray, model: Variational, rows: Rows, *, samples: int, memory_mb: float = 64.0
) -> Likelihood:
    """The likelihood of rows from the same noise for each: a row's estimate does not depend on the others."""
    check_counts(samples=samples)
    size, chunk = portion_sizes(_stored(model, rows), PORTION_OF_ROWS, samples, memory_mb)
    kept = weights.kept_for(samples)
    estimate = partial(_weight_sums, samples=samples, chunk=chunk, kept=kept, alike=True)
    found = in_portions(lambda own, portion: estimate(key, model, portion.T), key, rows, size)
    return weights.likelihood(weights.row_statistics(found, samples), samples)


@partial(jax.jit, static_argnames=("chunk", "kept", "alike"), compiler_options=compilation.WIDE)
def _weight_sums(
    key: PRNGKeyArray,
    model: Variational,
    visible: Float[Array, "visible row"],
    samples: Int[Array, ""],
    *,
    chunk: int,
    kept: int,
    alike: bool = False,
) -> Running:
    """The running sums of every row's weights, `chunk` samples at a time; `alike` if of the same noise."""
    rows = visible.T

    def draw(turn: Int[Array, ""]) -> LogWeights:
        noise = latent_noise(jax.random.fold_in(key, turn), model, rows[:1] if alike else rows, chunk)
        return log_ratios(model, rows, jnp.broadcast_to(noise, (len(rows), *noise.shape[1:])))  # ~ q(z | x)

    return weights.streamed(draw, samples, chunk=chunk, kept=kept)


def evidence_bound(
    key: PRNGKeyArray, model: Variational, rows: Rows, *, samples: int, memory_mb: float = 64.0
) -> EvidenceBound:
    """The evidence lower bound of rows, within about `memory_mb` of memory [vae eq. 10]."""
    check_counts(samples=samples)
    size, chunk = portion_sizes(_stored(model, rows), len(rows), samples, memory_mb)
    sums, divergence = in_portions(
        lambda own, portion: _bound_sums(own, model, portion, samples, chunk=chunk), key, rows, size
    )
    reconstruction = np.asarray(sums, np.float64) / samples
    values, number = reconstruction - divergence, len(rows)
    se = float(values.std(ddof=1) / math.sqrt(number)) if number > 1 else math.nan
    return EvidenceBound(float(values.mean()), se, samples, values, reconstruction, divergence)


@partial(jax.jit, static_argnames="chunk", compiler_options=compilation.WIDE)
def _bound_sums(
    key: PRNGKeyArray, model: Variational, rows: Rows, samples: Int[Array, ""], *, chunk: int
) -> tuple[Float[Array, " row"], Float[Array, " row"]]:
    """The sum of log p(x | z) over the samples of every row, and its divergence."""
    posterior = recognized(model, rows)

    def add(turn: Int[Array, ""], sums: Float[Array, " row"]) -> Float[Array, " row"]:
        noise = latent_noise(jax.random.fold_in(key, turn), model, rows, chunk)
        counted = turn * chunk + jnp.arange(chunk) < samples
        found = log_visible(model, rows, posterior.drawn(noise))  # ~ q(z | x)
        return sums + jnp.where(counted, found, 0).sum(axis=1)

    turns = (samples + chunk - 1) // chunk
    return jax.lax.fori_loop(0, turns, add, jnp.zeros(len(rows), rows.dtype)), posterior.divergence()


def _stored(model: Variational, rows: Rows) -> int:
    """About how many numbers a draw stores: that of filters, an image for each of them."""
    images = 0
    if isinstance(model.generation, Transposed):
        banks, sides = model.generation.filters, model.generation.sides
        images = sum(bank.kernel.shape[1] * math.prod(side) for bank, side in zip(banks, sides, strict=False))
    return 4 * rows.shape[1] + images


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
    return jnp.mean(jax.lax.map(one, (keys, rows), batch_size=min(PORTION_OF_ROWS, len(rows))))
