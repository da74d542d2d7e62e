"""Exact likelihoods of small machines, by enumerating one layer's states after the other.

    p(h_i) = sum over states of h_{i+1} of p(h_i | h_{i+1}) p(h_{i+1})

so only neighboring layers are ever enumerated together: 2^(l_i + l_{i+1}) terms, not 2^(all units).
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natgrad.errors import InputError
from natgrad.layers import bernoulli
from natgrad.models.helmholtz.machine import Helmholtz

_LARGEST = 24  # units of two neighboring hidden layers together
_ROOM = 2**26  # numbers: a layer's logits under every state of the layer above


@jax.jit
def log_likelihood(model: Helmholtz, visible: Float[Array, "visible row"]) -> Float[Array, " row"]:
    """log p(x) of every row, exactly; values in the model's coding."""
    if said := too_large(model):
        raise InputError(f"{said}; use the importance-sampled likelihood")
    hidden = model.sizes[1:]
    upper = states(hidden[-1])
    log_marginal = bernoulli.log_prob(model.prior[:, None, None], upper[:, None, :])[0]
    for layer, size in zip(model.generation[:0:-1], hidden[-2::-1], strict=True):
        lower = states(size)
        log_marginal = _down(model, layer, upper, log_marginal, lower)
        upper = lower
    return _down(model, model.generation[0], upper, log_marginal, model.coding.on(visible))


def too_large(model: Helmholtz) -> str:
    """What forbids enumeration, if anything does."""
    hidden = model.sizes[1:]
    most = max([low + up for low, up in pairwise(hidden)] or hidden)
    if most > _LARGEST:
        wanted = f"neighboring hidden layers of at most {_LARGEST} units together"
        return f"exact likelihood needs {wanted}, got {most}"
    widest = max(low * 2**up for low, up in pairwise(model.sizes))
    if widest > _ROOM:
        return f"exact likelihood would hold {widest:,} logits at once, more than {_ROOM:,}"
    return ""


@jax.jit
def data_divergence(
    model: Helmholtz, patterns: Array | np.ndarray, probabilities: Array | np.ndarray
) -> Float[Array, ""]:
    """KL(data || p) in nats; the data as {0,1} patterns [state, visible] with their probabilities."""
    on = jnp.asarray(patterns).astype(model.prior.dtype).T
    weight = jnp.asarray(probabilities).astype(model.prior.dtype)
    log_p = log_likelihood(model, model.coding.value(on, on.dtype))
    return jnp.sum(jax.scipy.special.xlogy(weight, weight) - weight * log_p)


def states(units: int) -> Float[Array, "unit state"]:
    """All 2^units states as {0,1} columns."""
    return ((jnp.arange(2**units) >> jnp.arange(units)[:, None]) & 1).astype(jnp.zeros(()).dtype)


def _down(model: Helmholtz, layer: bernoulli.Layer, upper: Array, log_upper: Array, lower: Array) -> Array:
    """log p of every column of `lower`, from all states above with their log-probabilities."""
    logit = bernoulli.logits(layer, model.coding.value(upper, upper.dtype)[:, :, None])

    def one(column: Array) -> Array:
        return jax.nn.logsumexp(bernoulli.log_prob(logit, column[:, None, None])[:, 0] + log_upper)

    return jax.lax.map(one, lower.T, batch_size=max(1, min(64, _ROOM // (4 * logit.size))))
