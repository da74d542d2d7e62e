"""One conditional Bernoulli layer: a unit is on with probability sigmoid(W h + b).

Values are coded {-1,+1} or {0,1}; the logit's meaning and the log-probabilities are the same in
both, only the numbers fed to the next layer differ [nrws eq. 16, 21]. Everything is computed from
logits: no probability is ever clipped. Arrays are [unit, sample, row] (see `natgrad.core`).
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.tree import pytree

Initializer = Callable[..., Array]
Values = Float[Array, "unit sample row"]

FEW_ROWS = 64  # up to here a product with the identity costs next to nothing


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
    return (layer.weight @ flat(inputs) + layer.bias[:, None]).reshape(-1, *inputs.shape[1:])


def gradient(inputs: Values, residuals: Values) -> Layer:
    """The loss gradient of a layer, from its inputs and the loss gradient of its logits.

    Where many samples share their inputs (`sample` axis of length one), the residuals are summed
    first: the first recognition layer sees only as many inputs as there are data rows.
    """
    if inputs.shape[1] != residuals.shape[1]:
        parts = [residuals[:, turn : turn + 1] for turn in range(residuals.shape[1])]
        residuals = functools.reduce(jnp.add, parts)
    columns = flat(residuals)
    return Layer(columns @ flat(inputs).T, columns @ jnp.ones_like(columns[0]))


def log_prob(logit: Values, on: Values) -> Float[Array, "sample row"]:
    """The log-probability of a layer's values: the sum over units of y a - log(1 + exp a)."""
    shape = jnp.broadcast_shapes(logit.shape, on.shape)[1:]
    wide, values = flat(spread(logit, shape[0])), flat(spread(on, shape[0]))
    linear = _total(values * wide - jnp.maximum(wide, 0))
    return linear.reshape(shape) - _total(jnp.log(_products(1 + _tail(flat(logit))))).reshape(logit.shape[1:])


def log_ratio(logit: Values, other: Values, on: Values) -> Float[Array, "sample row"]:
    """The log-probability of a layer's values with some logits, less that with others, in one go."""
    samples = on.shape[1]
    wide, against, values = flat(spread(logit, samples)), flat(spread(other, samples)), flat(on)
    linear = values * (wide - against) - jnp.maximum(wide, 0) + jnp.maximum(against, 0)
    products = (_products(1 + _tail(flat(each))) for each in (logit, other))
    if logit.shape == other.shape:
        return (_total(linear) - _total(jnp.log(jnp.divide(*products)))).reshape(on.shape[1:])
    narrow = (_total(jnp.log(found)) for found in products)
    one, two = (logs.reshape(each.shape[1:]) for logs, each in zip(narrow, (logit, other), strict=True))
    return _total(linear).reshape(on.shape[1:]) - one + two


def _products(factors: Float[Array, "unit draw"]) -> Float[Array, "side draw"]:
    """Products of factors in [1, 2], up to sixteen units to one: a logarithm of each is enough."""
    units = factors.shape[0]
    side = min(units, max(2, -(-units // 16)))  # rows that are left for the logarithm
    parts = [factors[start : start + side] for start in range(0, units, side)]
    missing = side - parts[-1].shape[0]
    parts[-1] = jnp.concatenate([parts[-1], jnp.ones_like(factors[:missing])])
    return functools.reduce(jnp.multiply, parts)


def _total(terms: Float[Array, "unit draw"]) -> Float[Array, " draw"]:
    """The sum over units, as a matrix product: the compiler makes a reduction's operands one by one."""
    return jnp.ones_like(terms[:, 0]) @ terms


def flat(values: Values) -> Float[Array, "unit draw"]:
    """Samples and rows as one axis: loops over two axes of which one is broadcast run much slower."""
    return values.reshape(values.shape[0], -1)


def spread(values: Values, samples: int) -> Values:
    """The values of data rows, which all samples share, once for every sample.

    Copied by a product with a row of identities, for the same reason as in `stored`.
    """
    units, shared, rows = values.shape
    if shared == samples or rows == 1:
        return values
    if rows > FEW_ROWS:
        return jnp.broadcast_to(values, (units, samples, rows))
    copies = np.tile(np.eye(rows, dtype=values.dtype), samples)
    return (flat(values) @ copies).reshape(units, samples, rows)


def stored(array: Float[Array, "... row"]) -> Float[Array, "... row"]:
    """The same numbers, made once: the compiler does not repeat what is behind a matrix product.

    It would otherwise compute a small array anew for every element that it is combined with;
    `optimization_barrier` does not stop it on a CPU.
    """
    if array.shape[-1] > FEW_ROWS:
        return array
    return array @ np.eye(array.shape[-1], dtype=array.dtype)


def probability(logit: Array) -> Array:
    """sigmoid(logit), from the same exponential as the log-probability: one is enough for both."""
    tail = _tail(logit)
    return jnp.where(logit >= 0, 1, tail) / (1 + tail)


def draw(uniform: Values, logit: Values, coding: Coding) -> Values:
    """Values of a layer with the given logits, from uniform numbers in [0, 1).

    The last operation is a division of 0 or +-x by x, which is exact, and which no compiler repeats,
    with all that stands before it, in every place where the values are used.
    """
    logit, chance = flat(spread(logit, uniform.shape[1])), flat(uniform)
    tail = _tail(logit)
    on = chance * (1 + tail) < jnp.where(logit >= 0, 1, tail)  # ~ Bernoulli(sigmoid(logit))
    x = 1 + chance
    return (coding.value(on, x.dtype) * x / x).reshape(uniform.shape)


def _tail(logit: Array) -> Array:
    return jnp.exp(-jnp.abs(logit))


def fresh(key: PRNGKeyArray, inputs: int, units: int, weights: Initializer, bias: float) -> Layer:
    """A layer with weights drawn by an initialiser for [out, in] arrays, and a constant bias."""
    dtype = jnp.zeros(()).dtype
    return Layer(weights(key, (units, inputs), dtype), jnp.full((units,), bias, dtype))
