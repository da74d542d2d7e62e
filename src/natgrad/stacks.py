"""Small layers treated together: padded with zeros to one size, and mapped at once.

A deep network's upper layers are tiny, yet each costs as many compiled kernels, and as many calls,
as a large one. What is done unit by unit or row by row does not mind zeros: they come out as zeros
and are cut off again.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from natgrad.models.bernoulli import Layer

T = TypeVar("T")
SIZES = (32, 64, 128)  # the largest sides of the layers that go together


def map_layers(
    function: Callable[..., T], layers: tuple[Layer, ...], *rest: tuple[Any, ...]
) -> tuple[T, ...]:
    """Like `natgrad.tree.map_layers`, for a function to which padding with zeros makes no difference.

    The function takes and returns pytrees of arrays; `rest` are tuples with one tree for every layer.
    """
    arguments = list(zip(layers, *rest, strict=True))
    results: dict[int, T] = {}
    for members in _groups(arguments):
        if len(members) == 1:
            results[members[0]] = function(*arguments[members[0]])
            continue
        stacked = jax.vmap(function)(*_stack([arguments[number] for number in members]))
        for place, number in enumerate(members):
            results[number] = _cut(stacked, place, jax.eval_shape(function, *arguments[number]))
    return tuple(results[number] for number in range(len(arguments)))


def _groups(arguments: list[Any]) -> list[list[int]]:
    """Which layers go together: those of the same structure and size class."""
    found: dict[Any, list[int]] = defaultdict(list)
    for number, (layer, *rest) in enumerate(arguments):
        fitting = [size for size in SIZES if max(layer.weight.shape) <= size]
        found[(min(fitting), jax.tree.structure(rest)) if fitting else number].append(number)
    return list(found.values())


def _stack(layers: list[Any]) -> Any:
    def one(*leaves: jax.Array) -> jax.Array:
        shape = [max(lengths) for lengths in zip(*(leaf.shape for leaf in leaves), strict=True)]
        grow = lambda leaf: [(0, to - now) for to, now in zip(shape, leaf.shape, strict=True)]  # noqa: E731
        return jnp.stack([jnp.pad(leaf, grow(leaf)) for leaf in leaves])

    return jax.tree.map(one, *layers)


def _cut(stacked: T, place: int, shapes: T) -> T:
    def one(leaf: jax.Array, shape: jax.ShapeDtypeStruct) -> jax.Array:
        return leaf[place][tuple(slice(length) for length in shape.shape)]

    return jax.tree.map(one, stacked, shapes)
