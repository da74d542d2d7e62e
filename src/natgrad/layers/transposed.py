"""The mirror image of a convolutional network: a perceptron, then filters that make images larger.

Where `layers.convolution` takes a bank of filters of side w and keeps the largest of every 2 x 2, here every
pixel is spread over a w x w square, two pixels apart: the transpose of a bank with stride two. Banks are
counted from the picture inward, as those of the network that they mirror.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.layers.convolution import image_sides
from natgrad.layers.perceptron import Activation, Perceptron, forward_pass, fresh_perceptron, scaled_normal
from natgrad.tree import pytree, static

_STRIDE = 2
_PIXELS = ("NCHW", "OIHW", "NCHW")


@pytree
class SpreadingFilters:
    """A bank of filters; a bias for each, or for every pixel of the picture."""

    kernel: Float[Array, "out in height width"]
    bias: Float[Array, "out rows columns"]


@pytree
class Transposed:
    """A perceptron and banks of filters; `sides` are (height, width) of the images, the largest first."""

    layers: Perceptron
    filters: tuple[SpreadingFilters, ...]
    sides: tuple[tuple[int, int], ...] = static()


def fresh_transposed(
    key: PRNGKeyArray,
    sizes: Sequence[int],
    filters: Sequence[int],
    image: tuple[int, int],
    *,
    width: int = 5,
) -> Transposed:
    """Layers of `sizes`, inputs first, then banks that end in one picture of size `image`."""
    sides = image_sides(image, len(filters), width)
    key_layers, key_filters = jax.random.split(key)
    height, side = sides[-1]
    layers = fresh_perceptron(key_layers, (*sizes, filters[-1] * height * side))
    banks: list[SpreadingFilters] = []
    keys = jax.random.split(key_filters, len(filters))
    for k, (above, below) in zip(keys, pairwise((1, *filters)), strict=True):
        meeting = max(1, below * width**2 // _STRIDE**2)  # of the pixels that are spread, on average
        kernel = scaled_normal(k, (above, below, width, width), meeting)
        banks.append(SpreadingFilters(kernel, jnp.zeros((above, 1, 1) if banks else (1, *image))))
    return Transposed(layers, tuple(banks), sides)


def transposed(activation: Activation = jnp.tanh) -> Callable[[Transposed, Array], Array]:
    """Outputs [row, pixel] for inputs [row, in]: a perceptron, and filters with an activation before each."""

    def network(parameters: Transposed, inputs: Array) -> Array:
        values = forward_pass(parameters.layers, inputs, activation)[0]
        values = values.reshape(len(inputs), -1, *parameters.sides[-1])
        for bank, sides in zip(parameters.filters[::-1], parameters.sides[-2::-1], strict=True):
            values = _spread(activation(values), bank, sides)
        return values.reshape(len(inputs), -1)

    return network


def _spread(values: Array, bank: SpreadingFilters, sides: tuple[int, int]) -> Array:
    """Every pixel over a square, two pixels apart, so that images of these sides result."""
    width = bank.kernel.shape[-1]
    around = [to + width - _STRIDE * now for now, to in zip(values.shape[2:], sides, strict=True)]
    padding = [(number // 2, number - number // 2) for number in around]
    spread = jax.lax.conv_general_dilated(
        values, bank.kernel, (1, 1), padding, (_STRIDE, _STRIDE), dimension_numbers=_PIXELS
    )
    return spread + bank.bias
