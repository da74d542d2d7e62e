"""The likelihood of a bidirectional Helmholtz machine, with its normalizer [bihm]; [nrws sec. 7].

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

from natgrad.evaluate import weights
from natgrad.evaluate.weights import DRAWS, Likelihood, Running
from natgrad.models.helmholtz import likelihood as importance
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.machine import Helmholtz


class Normalizer(NamedTuple):
    """log Z^2, its sampling error, and the shape of the tail of its terms (None if these are too few)."""

    log_z2: float
    se: float
    draws: int
    pareto_k: float | None


def normalizer(key: PRNGKeyArray, model: Helmholtz, *, draws: int = 100_000, inner: int = 10) -> Normalizer:
    """Estimate log Z^2 from that many dreams, each answered by `inner` recognitions."""
    chunk = max(1, min(draws, DRAWS // inner))
    sums = _ratio_sums(key, model, draws, chunk=chunk, inner=inner, kept=weights.kept_for(draws))
    found = weights.row_statistics(sums, draws)
    tail = None if found.pareto_k is None else float(found.pareto_k[0])
    return Normalizer(float(found.log_mean[0]), float(np.sqrt(found.variance[0])), draws, tail)


@partial(jax.jit, static_argnames=("chunk", "inner", "kept"))
def _ratio_sums(
    key: PRNGKeyArray, model: Helmholtz, draws: Int[Array, ""], *, chunk: int, inner: int, kept: int
) -> Running:
    """The running sums of one row: exp(-d(h) / 2) times the mean over h' of exp(d(h') / 2), by dreams."""

    def draw(turn: Int[Array, ""]) -> Float[Array, "1 dream"]:
        key_dream, key_wake = jax.random.split(jax.random.fold_in(key, turn))
        dreams = helmholtz.dream(key_dream, model, chunk, 1)  # ~ p(x, h)
        answers = helmholtz.wake(key_wake, model, dreams.values[0][..., 0], inner)  # ~ q(h' | x)
        outer = helmholtz.log_weights(model, dreams)[:, 0]
        mean = jax.nn.logsumexp(helmholtz.log_weights(model, answers) / 2, axis=1) - jnp.log(inner)
        return (mean - outer / 2)[None]

    return weights.streamed(draw, draws, chunk=chunk, kept=kept)


def log_unnormalized(
    key: PRNGKeyArray,
    model: Helmholtz,
    visible: Float[Array, "visible row"],
    *,
    samples: int,
    memory_mb: float = 64.0,
) -> Likelihood:
    """log p*(x) + log Z^2 = 2 log E_q[exp(d / 2)], the likelihood up to its normalizer."""
    roots = importance.log_means(key, model, visible, samples=samples, power=0.5, memory_mb=memory_mb)
    twice = roots._replace(log_mean=2 * roots.log_mean, variance=4 * roots.variance)
    return weights.likelihood(twice, samples)
