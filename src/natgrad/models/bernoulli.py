"""One conditional Bernoulli layer: a unit is on with probability sigmoid(W h + b).

Values are coded {-1,+1} or {0,1}; the logit's meaning and the log-probabilities are the same in
both, only the numbers fed to the next layer differ [nrws eq. 16, 21]. Everything is computed from
logits: no probability is ever clipped. Arrays are [unit, sample, row] (see `natgrad.core`).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.tree import pytree

Initializer = Callable[..., Array]
Values = Float[Array, "unit sample row"]


class Coding(NamedTuple):
    """The two numbers that stand for off and on."""

    low: float
    high: float = 1.0

    def value(self, on: Array, dtype: jnp.dtype | type = jnp.float32) -> Array:
        """From {0,1} (or a mean in between) to this coding."""
        return self.low + (self.high - self.low) * on.astype(dtype)

    def on(self, value: Array) -> Array:
        """From this coding to {0,1}."""
        return (value - self.low) / (self.high - self.low)


SIGNED = Coding(-1.0)
BINARY = Coding(0.0)


@pytree
class Layer:
    """The weights into a layer's units, one row per unit, and their biases."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]


def logits(layer: Layer, inputs: Values) -> Values:
    """W h + b for every row."""
    units, samples, rows = inputs.shape
    product = layer.weight @ inputs.reshape(units, samples * rows)
    return product.reshape(-1, samples, rows) + layer.bias[:, None, None]


def gradient(inputs: Values, residuals: Values) -> Layer:
    """The loss gradient of a layer, from its inputs and the loss gradient of its logits.

    Where many samples share their inputs (`sample` axis of length one), the residuals are summed
    first: the first recognition layer sees only as many inputs as there are data rows.
    """
    if inputs.shape[1] != residuals.shape[1]:
        residuals = residuals.sum(axis=1, keepdims=True)
    flat = residuals.reshape(residuals.shape[0], -1)
    return Layer(flat @ inputs.reshape(inputs.shape[0], -1).T, flat.sum(axis=1))


def log_prob(logit: Values, on: Values) -> Float[Array, "sample row"]:
    """The log-probability of a layer's values: the sum over units of y a - log(1 + exp a).

    The logarithms of many units are taken at once, as the logarithm of a product of factors
    1 + exp(-|a|) in [1, 2]; a hundred of them cannot overflow.
    """
    linear = (on * logit - jnp.maximum(logit, 0)).sum(axis=0)
    factors = 1 + _tail(logit)
    chunks = [factors[start : start + 100] for start in range(0, logit.shape[0], 100)]
    return linear - sum(jnp.log(jnp.prod(chunk, axis=0)) for chunk in chunks)


def probability(logit: Array) -> Array:
    """sigmoid(logit), from the same exponential as the log-probability: one is enough for both."""
    tail = _tail(logit)
    return jnp.where(logit >= 0, 1, tail) / (1 + tail)


def draw(uniform: Values, logit: Values, coding: Coding) -> Values:
    """Values of a layer with the given logits, from uniform numbers in [0, 1)."""
    return coding.value(uniform < probability(logit), logit.dtype)  # ~ Bernoulli(sigmoid(logit))


def _tail(logit: Array) -> Array:
    return jnp.exp(-jnp.abs(logit))


def fresh(key: PRNGKeyArray, inputs: int, units: int, weights: Initializer, bias: float) -> Layer:
    """A layer with weights drawn by an initialiser for [out, in] arrays, and a constant bias."""
    dtype = jnp.zeros(()).dtype
    return Layer(weights(key, (units, inputs), dtype), jnp.full((units,), bias, dtype))
