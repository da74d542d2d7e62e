"""The likelihood of a bidirectional Helmholtz machine, with its normaliser [bihm]; [nrws sec. 7].

    p*(x) = (1/Z^2) (sum_h sqrt(p(x, h) q(h | x)))^2,    Z^2 = sum_x (sum_h sqrt(p(x, h) q(h | x)))^2 <= 1

With d(h) = log p(x, h) - log q(h | x), the inner sum is E_q[exp(d / 2)], and

    Z^2 = E exp((d(h') - d(h)) / 2)     over (x, h) ~ p, h' ~ q(. | x),

so both need only samples. Published values of log p* leave Z out; since Z <= 1 they are too low.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.machine import Helmholtz


class Normaliser(NamedTuple):
    """log Z^2 and its sampling error."""

    log_z2: float
    se: float
    draws: int


def normaliser(key: PRNGKeyArray, model: Helmholtz, *, draws: int = 100_000, inner: int = 10) -> Normaliser:
    """Estimate log Z^2 from that many dreams, each answered by `inner` recognitions."""
    portion = min(draws, 2000)
    turns = -(-draws // portion)
    logs = np.concatenate(
        [np.asarray(_ratios(jax.random.fold_in(key, turn), model, portion, inner)) for turn in range(turns)]
    ).astype(np.float64)
    top = logs.max()
    ratios = np.exp(logs - top)
    error = ratios.std(ddof=1) / np.sqrt(len(ratios)) / ratios.mean()
    return Normaliser(float(top + np.log(ratios.mean())), float(error), len(ratios))


@partial(jax.jit, static_argnames=("portion", "inner"))
def _ratios(key: PRNGKeyArray, model: Helmholtz, portion: int, inner: int) -> Float[Array, " draw"]:
    """log of exp(-d(h) / 2) times the mean over h' of exp(d(h') / 2), one per dream."""
    key_dream, key_wake = jax.random.split(key)
    dreams = helmholtz.dream(key_dream, model, 1, portion)  # ~ p(x, h)
    answers = helmholtz.wake(key_wake, model, dreams.values[0][:, 0], inner)  # ~ q(h' | x)
    outer = helmholtz.log_weights(model, dreams)[0]
    mean = jax.nn.logsumexp(helmholtz.log_weights(model, answers) / 2, axis=0) - jnp.log(inner)
    return mean - outer / 2


def log_unnormalised(
    key: PRNGKeyArray, model: Helmholtz, visible: Float[Array, "visible row"], *, samples: int
) -> np.ndarray:
    """2 log E_q[exp(d / 2)] of every row: log p*(x) + log Z^2."""
    found = []
    for start in range(0, visible.shape[1], 200):
        portion = visible[:, start : start + 200]
        turns = -(-samples // 100)
        found.append(
            np.asarray(_half_sums(jax.random.fold_in(key, start), model, portion, jnp.asarray(turns)))
        )
    return np.concatenate(found).astype(np.float64)


@jax.jit
def _half_sums(
    key: PRNGKeyArray, model: Helmholtz, visible: Float[Array, "visible row"], turns: Int[Array, ""]
) -> Float[Array, " row"]:
    def body(turn: Array, total: Array) -> Array:
        drawn = helmholtz.wake(jax.random.fold_in(key, turn), model, visible, 100)
        return jnp.logaddexp(total, jax.nn.logsumexp(helmholtz.log_weights(model, drawn) / 2, axis=0))

    nothing = jnp.full(visible.shape[1:], -jnp.inf, visible.dtype)
    total = jax.lax.fori_loop(0, turns, body, nothing)
    return 2 * (total - jnp.log((100 * turns).astype(visible.dtype)))
