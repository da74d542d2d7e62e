"""Importance-sampled log-likelihoods in bounded memory.

    log p(x) ~ log (1/N) sum_s w_s,   w_s = p(x, h_s) / q(h_s | x),   h_s ~ q(h | x)

The samples are taken in chunks and summed up as they come, so any number fits: a running
log-sum-exp of log w, and one of 2 log w for the sampling error. The number of samples is not
compiled in.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad.errors import InputError
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.training import compile as ahead

Visible = Float[Array, "visible row"]


ROWS, DRAWS = 32, 2048  # at a time, at most: more leave the cache, and take twice the time


class Likelihood(NamedTuple):
    """The mean log-likelihood of some rows, in nats.

    `se` is its standard error over rows (other rows from the same source), `mc_se` its sampling
    error (other samples for the same rows, by the delta method).
    """

    mean: float
    se: float
    mc_se: float
    samples: int
    rows: np.ndarray


def log_likelihood(
    key: PRNGKeyArray, model: Helmholtz, visible: Visible, *, samples: int, memory_mb: float = 64.0
) -> Likelihood:
    """The likelihood of rows in the model's coding, [visible, row], within about `memory_mb` of memory."""
    if samples < 1:
        raise InputError(f"samples: expected at least 1, got {samples}")
    if not memory_mb > 0:
        raise InputError(f"memory_mb: expected a number greater than 0, got {memory_mb}")
    total = visible.shape[1]
    rows, chunk = _portions(model, total, samples, memory_mb)
    values, errors = [], []
    for start in range(0, total, rows):
        portion = visible[
            :, np.arange(start, start + rows) % total
        ]  # the last portion is filled up, then cut
        value, error = _estimate(jax.random.fold_in(key, start), model, portion, samples, chunk=chunk)
        values.append(value)
        errors.append(error)
    per_row = np.concatenate([np.asarray(value, np.float64) for value in values])[:total]
    variance = np.concatenate([np.asarray(error, np.float64) for error in errors])[:total]
    se = per_row.std(ddof=1) / np.sqrt(total) if total > 1 else float("nan")
    return Likelihood(
        per_row.mean().item(), float(se), float(np.sqrt(variance.sum()) / total), samples, per_row
    )


@partial(jax.jit, static_argnames="chunk", compiler_options=ahead.WIDE)
def _estimate(
    key: PRNGKeyArray, model: Helmholtz, visible: Visible, samples: Int[Array, ""], *, chunk: int
) -> tuple[Float[Array, " row"], Float[Array, " row"]]:
    """The estimate and its sampling variance for every row, `chunk` samples at a time."""

    def body(turn: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        drawn = helmholtz.wake(jax.random.fold_in(key, turn), model, visible, chunk)  # ~ q(h | x)
        log_weights = helmholtz.log_weights(model, drawn)
        wanted = turn * chunk + jnp.arange(chunk) < samples
        log_weights = jnp.where(wanted[:, None], log_weights, -jnp.inf)
        first, second = (jax.nn.logsumexp(power * log_weights, axis=0) for power in (1.0, 2.0))
        return jnp.logaddexp(sums[0], first), jnp.logaddexp(sums[1], second)

    nothing = jnp.full(visible.shape[1:], -jnp.inf, visible.dtype)
    first, second = jax.lax.fori_loop(0, (samples + chunk - 1) // chunk, body, (nothing, nothing))
    return first - jnp.log(samples), jnp.maximum(jnp.exp(second - 2 * first) - 1 / samples, 0.0)


def _portions(model: Helmholtz, total: int, samples: int, memory_mb: float) -> tuple[int, int]:
    """Rows and samples at a time: what a processor's cache holds, and no more than fits the memory."""
    room = max(1, int(memory_mb * 2**20 / (4 * 4 * sum(model.sizes))))
    rows = min(total, max(1, room // min(samples, 64)), ROWS)
    return rows, max(1, min(samples, room // rows, DRAWS // rows))
