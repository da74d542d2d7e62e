"""Posterior means by importance sampling, row by row and in bounded memory.

    E[f(h) | x] ~ sum_s w_s f(h_s),   w_s ~ p(x, h_s) / q(h_s | x) up to their sum,   h_s ~ q(h | x)

with the weights of [nrws eq. 9].

Every row is treated alone and with the same uniform numbers: what is said of it does not depend on the
rows beside it, to the last bit, and is a fixed function of the row, as a feature should be. The price is
that the sampling errors of different rows are correlated.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.layers import bernoulli
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.machine import Helmholtz

PORTION = 256  # rows at a time, if the memory allows


class Posterior(NamedTuple):
    """What samples of the hidden units say of rows: arrays [row, ...], of NumPy outside jit.

    `hidden[i]` are the posterior means of layer i+1's units in {0,1}; `visible` the mean of p(x | h_1), the
    reconstruction; `log_likelihood` is log (1/S) sum_s w_s.
    """

    hidden: tuple[Any, ...]
    visible: Any
    log_likelihood: Any


def posterior(
    key: PRNGKeyArray,
    model: Helmholtz,
    visible: Float[Array, "visible row"],
    *,
    samples: int,
    memory_mb: float = 64.0,
) -> Posterior:
    """Posterior means of rows in the model's coding, within about `memory_mb` of memory."""
    total = visible.shape[1]
    room = int(memory_mb * 2**20 / (4 * 4 * sum(model.sizes) * samples))
    size = max(1, min(room, 1 << (total - 1).bit_length(), PORTION))  # few sizes, few compilations
    parts = []
    for first in range(0, total, size):
        rows = visible[:, np.arange(first, first + size) % total]  # the last portion is filled up, then cut
        parts.append(jax.tree.map(np.asarray, _portion(key, model, rows, samples=samples)))
    return jax.tree.map(lambda *arrays: np.concatenate(arrays)[:total], *parts)


@partial(jax.jit, static_argnames="samples")
def _portion(key: PRNGKeyArray, model: Helmholtz, visible: Array, *, samples: int) -> Posterior:
    def one(row: Float[Array, " visible"]) -> Posterior:
        drawn = helmholtz.wake(key, model, row[:, None], samples)  # ~ q(h | x)
        log_weights = helmholtz.log_weights(model, drawn)[0]
        weights = jax.nn.softmax(log_weights)
        hidden = tuple(model.coding.on(value[:, 0]) @ weights for value in drawn.values[1:])
        means = bernoulli.probability(drawn.generation[0][:, 0]) @ weights
        return Posterior(hidden, means, jax.nn.logsumexp(log_weights) - jnp.log(samples))

    return jax.lax.map(one, visible.T)
