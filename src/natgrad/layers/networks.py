"""Small networks as plain pytrees and functions: a perceptron and a convolutional network.

Parameters are tuples of layers, outputs a function of (parameters, inputs) with the rows first; the
law of the targets is given apart (`models.outputs`). Nothing else in the library knows these networks:
every metric but the per-unit one takes any pytree and any function.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.errors import InputError
from natgrad.layers.bernoulli import Layer
from natgrad.tree import pytree

Activation = Callable[[Array], Array]
Perceptron = tuple[Layer, ...]
_POOL = 2


@pytree
class Filters:
    """A bank of filters and a bias for each."""

    kernel: Float[Array, "out in height width"]
    bias: Float[Array, " out"]


@pytree
class Convolutional:
    """Banks of filters, each followed by pooling, and a perceptron on what is left."""

    filters: tuple[Filters, ...]
    layers: Perceptron


def fresh_perceptron(key: PRNGKeyArray, sizes: Sequence[int]) -> Perceptron:
    """Layers of the given sizes, inputs first; weights of variance 1 / inputs, biases zero."""
    if len(sizes) < 2 or min(sizes) < 1:
        raise InputError(
            f"a perceptron needs at least two positive sizes (inputs, ..., outputs), got {tuple(sizes)}"
        )
    keys = jax.random.split(key, len(sizes) - 1)
    return tuple(
        Layer(_normal(k, (units, inputs), inputs), jnp.zeros((units,)))
        for k, (inputs, units) in zip(keys, pairwise(sizes), strict=True)
    )


def perceptron(activation: Activation = jnp.tanh) -> Callable[[Perceptron, Array], Array]:
    """Outputs [row, out] of layers with one activation between them; inputs are flattened to [row, in]."""

    def network(layers: Perceptron, inputs: Array) -> Array:
        return trace(layers, inputs, activation)[0]

    return network


def trace(
    layers: Perceptron, inputs: Array, activation: Activation, shifts: Sequence[Array] | None = None
) -> tuple[Array, tuple[Array, ...]]:
    """The outputs and what entered every layer; `shifts` are added to the sums of every layer, [row, out].

    The derivative with respect to a shift is that with respect to a unit's sum, for every row.
    """
    values, entered = inputs.reshape(inputs.shape[0], -1), []
    for number, layer in enumerate(layers):
        entered.append(values)
        values = values @ layer.weight.T + layer.bias
        if shifts is not None:
            values = values + shifts[number]
        if number + 1 < len(layers):
            values = activation(values)
    return values, tuple(entered)


def fresh_convolutional(
    key: PRNGKeyArray,
    image: tuple[int, int, int],
    filters: Sequence[int],
    sizes: Sequence[int],
    *,
    width: int = 5,
) -> Convolutional:
    """Banks of `filters` of side `width` on images [channel, height, side], then layers of `sizes`."""
    key_filters, key_layers = jax.random.split(key)
    channels, height, side = image
    banks = []
    for k, count in zip(jax.random.split(key_filters, len(filters)), filters, strict=True):
        shape = (count, channels, width, width)
        banks.append(Filters(_normal(k, shape, channels * width**2), jnp.zeros((count,))))
        channels, height, side = count, (height - width + 1) // _POOL, (side - width + 1) // _POOL
    if min(height, side) < 1:
        raise InputError(
            f"images of {image[1]} x {image[2]} are too small for {len(filters)} banks of {width} x {width} "
            "filters; use fewer or smaller filters"
        )
    return Convolutional(tuple(banks), fresh_perceptron(key_layers, (channels * height * side, *sizes)))


def convolutional(activation: Activation = jnp.tanh) -> Callable[[Convolutional, Array], Array]:
    """Outputs [row, out] for images [row, channel, height, side]: filters, 2 x 2 maximum, activation."""

    def network(parameters: Convolutional, images: Array) -> Array:
        values = images
        for bank in parameters.filters:
            sums = jax.lax.conv(values, bank.kernel, (1, 1), "VALID") + bank.bias[:, None, None]
            values = activation(_pooled(sums))
        return trace(parameters.layers, values, activation)[0]

    return network


def _pooled(values: Array) -> Array:
    """The largest of every 2 x 2; what does not fill a square is left out."""
    rows, channels, height, side = values.shape
    whole = values[:, :, : height // _POOL * _POOL, : side // _POOL * _POOL]
    return whole.reshape(rows, channels, height // _POOL, _POOL, side // _POOL, _POOL).max(axis=(3, 5))


def _normal(key: PRNGKeyArray, shape: tuple[int, ...], inputs: int) -> Array:
    return jax.random.normal(key, shape) / jnp.sqrt(inputs)
