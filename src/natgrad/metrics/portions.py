"""Sums over rows, so many at a time: what bounds the memory of a metric."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad import tree
from natgrad.core import Model
from natgrad.layers.task import Examples, Task


def over_portions(
    part: Callable[[Model, Examples, Array], Model], parameters: Model, rows: Examples, size: int
) -> Callable[[Model], Model]:
    """A product as a sum over portions of rows, each with the rows' weights."""
    pieces, weights = (
        portions(rows, size),
        row_weights(rows.number, size, jax.tree.leaves(parameters)[0].dtype),
    )

    def mv(v: Model) -> Model:
        add = lambda total, piece: (tree.add(total, part(v, *piece)), None)  # noqa: E731
        return jax.lax.scan(add, tree.zeros(v), (pieces, weights))[0]

    return mv


def portions(rows: Examples, size: int) -> Examples:
    """Rows as [portion, size, ...]; the last one is filled with rows from the start, for weight zero."""
    count = -(-rows.number // size)

    def split(leaf: Array) -> Array:
        filled = leaf if count * size == rows.number else leaf[jnp.arange(count * size) % rows.number]
        return filled.reshape(count, size, *leaf.shape[1:])

    return jax.tree.map(split, rows)


def row_weights(number: int, size: int, dtype: Any) -> Float[Array, "portion size"]:
    """1/n for every row, 0 for those that only fill the last portion."""
    count = -(-number // size)
    return (jnp.arange(count * size) < number).astype(dtype).reshape(count, size) / number


def summed(task: Task, parameters: Model, rows: Examples, weights: Float[Array, " row"]) -> Float[Array, ""]:
    """The weighted sum of -log p(t | r)."""
    return -weights @ task.output.log_prob(task.network(parameters, rows.inputs), rows.targets)
