"""Small layers treated together: padded with zeros to one size, and mapped at once.

A deep network's upper layers are tiny, yet each costs as many compiled kernels, and as many calls,
as a large one. What is done unit by unit or row by row does not mind zeros: they come out as zeros
and are cut off again.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")
SIZES = (32, 64, 128)  # the largest sides of the layers that go together


def map_stacked(function: Callable[..., T], *rest: tuple[Any, ...]) -> tuple[T, ...]:
    """Like `natgrad.tree.map_layers`, for a function to which padding with zeros makes no difference.

    The function takes and returns pytrees of arrays; `rest` are tuples with one tree for every layer.
    """
    return _map(function, SIZES, rest)


def at_once(function: Callable[..., T], *rest: tuple[Any, ...]) -> tuple[T, ...]:
    """The same with all small layers at once: less to compile, more to compute."""
    return _map(function, SIZES[-1:], rest)


def _map(
    function: Callable[..., T], sizes: Sequence[int], rest: tuple[tuple[Any, ...], ...]
) -> tuple[T, ...]:
    arguments = list(zip(*rest, strict=True))
    results: dict[int, T] = {}
    for members in _groups(arguments, sizes):
        if len(members) == 1:
            results[members[0]] = function(*arguments[members[0]])
            continue
        stacked = jax.vmap(function)(*_stack([arguments[number] for number in members]))
        for place, number in enumerate(members):
            results[number] = _cut(stacked, place, jax.eval_shape(function, *arguments[number]))
    return tuple(results[number] for number in range(len(arguments)))


def _groups(arguments: list[Any], sizes: Sequence[int]) -> list[list[int]]:
    """Which layers go together: those of the same structure and size class."""
    found: dict[Any, list[int]] = defaultdict(list)
    for number, argument in enumerate(arguments):
        leaves, structure = jax.tree.flatten(argument)
        fitting = [size for size in sizes if max(leaf.shape[0] for leaf in leaves if leaf.ndim) <= size]
        found[(min(fitting), structure) if fitting else number].append(number)
    return list(found.values())


def _stack(layers: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: _padded(leaves), *layers)


def _padded(leaves: Sequence[jax.Array]) -> jax.Array:
    """Arrays as one, filled up with zeros: in the first axis by pieces between them, not by a kernel."""
    if leaves[0].ndim == 0:
        return jnp.stack(leaves)
    most, *shape = (max(lengths) for lengths in zip(*(leaf.shape for leaf in leaves), strict=True))
    pieces = []
    for leaf in leaves:
        grow = [(0, to - now) for to, now in zip(shape, leaf.shape[1:], strict=True)]
        filled = jnp.pad(leaf, [(0, 0), *grow])
        pieces += [filled, jnp.zeros((most - leaf.shape[0], *shape), leaf.dtype)]
    return jnp.concatenate(pieces).reshape(len(leaves), most, *shape)


def _cut(stacked: T, place: int, shapes: T) -> T:
    def one(leaf: jax.Array, shape: jax.ShapeDtypeStruct) -> jax.Array:
        return leaf[place][tuple(slice(length) for length in shape.shape)]

    return jax.tree.map(one, stacked, shapes)
