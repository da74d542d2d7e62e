"""Importance-sampled log-likelihoods in bounded memory.

    log p(x) ~ log (1/N) sum_s w_s,   w_s = p(x, h_s) / q(h_s | x),   h_s ~ q(h | x)

The samples are taken in chunks and summed up as they come, so any number fits; `natgrad.evaluate.weights`
has the sums, their errors, and what tells whether these are to be trusted. The number of samples is not
compiled in.
"""

from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad.errors import InputError
from natgrad.evaluate import weights
from natgrad.evaluate.weights import Likelihood, RowStatistics, Running
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.training import compile as compilation

_Visible = Float[Array, "visible row"]


_ROWS, DRAWS = 32, 2048  # at a time, at most: more leave the cache, and take twice the time


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
    if samples < 1:
        raise InputError(f"samples: expected at least 1, got {samples}")
    if not memory_mb > 0:
        raise InputError(f"memory_mb: expected a number greater than 0, got {memory_mb}")
    total = visible.shape[1]
    rows, chunk = _portions(model, total, samples, memory_mb)
    estimate = partial(_estimate, chunk=chunk, kept=weights.kept_for(samples) if tails else 0)
    starts, found = np.arange(0, total, rows), []
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, starts)
    for own, start in zip(keys, starts, strict=True):
        portion = visible[:, np.arange(start, start + rows) % total]  # the last one is filled up, then cut
        found.append(jax.tree.map(np.asarray, estimate(own, model, portion, samples, power)))
    sums = jax.tree.map(lambda *parts: np.concatenate(parts)[:total], *found)
    return weights.row_statistics(sums, samples)


@partial(jax.jit, static_argnames=("chunk", "kept"), compiler_options=compilation.WIDE)
def _estimate(
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


def _portions(model: Helmholtz, total: int, samples: int, memory_mb: float) -> tuple[int, int]:
    """Rows and samples at a time: what a processor's cache holds, and no more than fits the memory."""
    room = max(1, int(memory_mb * 2**20 / (4 * 4 * sum(model.sizes))))
    rows = min(total, max(1, room // min(samples, 64)), _ROWS)
    return rows, max(1, min(samples, room // rows, DRAWS // rows))
