"""Whether rows are independent of one another: tried once, with made-up numbers, while a program is traced.

A network with statistics over the batch gives a row other outputs among others than alone. What is made row
by row, factors and blocks of layers, would be wrong for it without a word.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from natgrad.errors import InputError
from natgrad.layers.task import Network

_CLOSE = 1e-3  # as a share of the largest output


def check_apart(network: Network, parameters: Any, inputs: Any) -> None:
    """Refuse a network whose rows influence each other; one that cannot be tried is not refused."""
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (parameters, inputs))
    leaves, structure = jax.tree.flatten(shapes)
    given = structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    try:
        apart = _tried(network, *given)
    except TypeError:  # a network that cannot be a key
        apart = _apart(network, *given)
    if not apart:
        raise InputError(
            "this metric is made row by row, but the network gives a row other outputs among others than "
            "alone; freeze statistics over the batch (batch normalization) and what is drawn for all rows at "
            "once (dropout), or use solver=conjugate_gradient(20), which takes the batch as a whole"
        )


def made_up(shape: jax.ShapeDtypeStruct, rows: int | None = None) -> Array:
    """An array like another one, or like so many rows of it: numbers that differ from row to row."""
    size = shape.shape if rows is None else (rows, *shape.shape[1:])
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), size)
    if jnp.issubdtype(shape.dtype, jnp.floating):
        numbers = np.cos(1.0 + np.arange(np.prod(size, dtype=int)) ** 2 % 1009)
        return jnp.asarray(numbers.reshape(size), shape.dtype)
    first = np.arange(size[0]) if size else np.zeros((), int)
    return jnp.asarray(np.broadcast_to(first.reshape(-1, *[1] * (len(size) - 1)), size), shape.dtype)


def _apart(network: Network, structure: Any, known: tuple[Any, ...]) -> bool:
    def both(parameters: Any, inputs: Any) -> tuple[Array, Array]:
        last = jax.tree.map(lambda leaf: leaf[1:], inputs)
        return network(parameters, inputs)[1], network(parameters, last)[0]

    shapes = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*each) for each in known])
    with jax.ensure_compile_time_eval():
        parameters = jax.tree.map(made_up, shapes[0])
        inputs = jax.tree.map(lambda shape: made_up(shape, rows=2), shapes[1])
        try:
            among, alone = map(np.asarray, jax.jit(both)(parameters, inputs))
        except Exception:
            return True
    if not np.isfinite(among).all():
        return True
    return bool(np.abs(among - alone).max() <= _CLOSE * np.abs(among).max())  # false where it is NaN


_tried: Callable[..., bool] = lru_cache(maxsize=256)(_apart)
