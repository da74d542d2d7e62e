"""Importance-sampled log-likelihoods in bounded memory.

    log p(x) ~ log (1/N) sum_s w_s,   w_s = p(x, h_s) / q(h_s | x),   h_s ~ q(h | x)

The samples are taken in chunks and summed up as they come, so any number fits; `natgrad.evaluate.weights`
has the sums, their errors, and what tells whether these are to be trusted. The number of samples is not
compiled in.
"""

from functools import partial

import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad.evaluate import weights
from natgrad.evaluate.portions import over_rows, portion_sizes
from natgrad.evaluate.weights import Likelihood, RowStatistics, Running
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.training import compile as compilation

_Visible = Float[Array, "visible row"]


def log_likelihood(
    key: PRNGKeyArray,
    model: Helmholtz,
    visible: _Visible,
    *,
    samples: int,
    memory_mb: float = 64.0,
    tails: bool = True,
) -> Likelihood:
    """The likelihood of rows in the model's coding, [visible, row], within about `memory_mb` of memory.

    Without `tails` it costs a little less, and `pareto_k` is None.
    """
    found = log_means(key, model, visible, samples=samples, memory_mb=memory_mb, tails=tails)
    return weights.likelihood(found, samples)


def log_means(
    key: PRNGKeyArray,
    model: Helmholtz,
    visible: _Visible,
    *,
    samples: int,
    power: float = 1.0,
    memory_mb: float = 64.0,
    tails: bool = True,
) -> RowStatistics:
    """The log-mean of w^power for every row, and what its weights tell."""
    rows, chunk = portion_sizes(sum(model.sizes), visible.shape[1], samples, memory_mb)
    kept = weights.kept_for(samples) if tails else 0

    def running_sums(own: PRNGKeyArray, portion: _Visible) -> Running:
        return _running_sums(own, model, portion, samples, power, chunk=chunk, kept=kept)

    return over_rows(running_sums, key, visible, rows, samples)


@partial(jax.jit, static_argnames=("chunk", "kept"), compiler_options=compilation.WIDE)
def _running_sums(
    key: PRNGKeyArray,
    model: Helmholtz,
    visible: _Visible,
    samples: Int[Array, ""],
    power: Float[Array, ""],
    *,
    chunk: int,
    kept: int,
) -> Running:
    """The running sums of every row's weights to a power, `chunk` samples at a time."""

    def draw(turn: Int[Array, ""]) -> Float[Array, "row sample"]:
        drawn = helmholtz.wake(jax.random.fold_in(key, turn), model, visible, chunk)  # ~ q(h | x)
        return power * helmholtz.log_weights(model, drawn)

    return weights.streamed(draw, samples, chunk=chunk, kept=kept)
