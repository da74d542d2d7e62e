"""A convolutional network as a plain pytree and a function: filters, pooling, and a perceptron at the end.

Outputs are a function of (parameters, images) with the rows first; no metric knows this network.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.errors import InputError
from natgrad.layers.perceptron import Activation, Perceptron, forward_pass, fresh_perceptron, scaled_normal
from natgrad.tree import pytree

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
    height, side = image_sides((height, side), len(filters), width)[-1]
    banks = []
    for k, count in zip(jax.random.split(key_filters, len(filters)), filters, strict=True):
        shape = (count, channels, width, width)
        banks.append(Filters(scaled_normal(k, shape, channels * width**2), jnp.zeros((count,))))
        channels = count
    return Convolutional(tuple(banks), fresh_perceptron(key_layers, (channels * height * side, *sizes)))


def image_sides(image: tuple[int, int], banks: int, width: int) -> tuple[tuple[int, int], ...]:
    """The sides of images before any bank of filters and after each, pooled.

    >>> image_sides((28, 28), 2, 5)
    ((28, 28), (12, 12), (4, 4))
    """
    found = [image]
    for _ in range(banks):
        height, side = ((before - width + 1) // _POOL for before in found[-1])
        found.append((height, side))
    if min(found[-1]) < 1:
        raise InputError(
            f"images of {image[0]} x {image[1]} are too small for {banks} banks of {width} x {width} "
            "filters; use fewer or smaller filters"
        )
    return tuple(found)


def convolutional(activation: Activation = jnp.tanh) -> Callable[[Convolutional, Array], Array]:
    """Outputs [row, out] for images [row, channel, height, side]: filters, 2 x 2 maximum, activation."""

    def network(parameters: Convolutional, images: Array) -> Array:
        values = images
        for bank in parameters.filters:
            sums = jax.lax.conv(values, bank.kernel, (1, 1), "VALID") + bank.bias[:, None, None]
            values = activation(_pooled(sums))
        return forward_pass(parameters.layers, values, activation)[0]

    return network


def _pooled(values: Array) -> Array:
    """The largest of every 2 x 2; what does not fill a square is left out."""
    rows, channels, height, side = values.shape
    whole = values[:, :, : height // _POOL * _POOL, : side // _POOL * _POOL]
    return whole.reshape(rows, channels, height // _POOL, _POOL, side // _POOL, _POOL).max(axis=(3, 5))
