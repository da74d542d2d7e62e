"""Sums over samples of many rows in bounded memory: so many rows, and samples of each, at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.devices import everywhere
from natgrad.errors import InputError, check_counts
from natgrad.evaluate import weights
from natgrad.evaluate.weights import RowStatistics, Running

ROWS, DRAWS = 32, 2048  # at a time, at most: more leave the cache, and take twice the time

PortionSums = Callable[[PRNGKeyArray, Float[Array, "visible row"]], Running]


def portion_sizes(numbers: int, total: int, samples: int, memory_mb: float) -> tuple[int, int]:
    """Rows and samples at a time: what a processor's cache holds, and no more than fits the memory.

    `numbers` is how many a draw stores, `total` how many rows there are.
    """
    check_counts(samples=samples)
    if not memory_mb > 0:
        raise InputError(f"memory_mb: expected a number greater than 0, got {memory_mb}")
    room = max(1, int(memory_mb * 2**20 / (4 * 4 * numbers)))
    rows = min(total, max(1, room // min(samples, 64)), ROWS)
    return rows, max(1, min(samples, room // rows, DRAWS // rows))


def over_rows(
    estimate: PortionSums, key: PRNGKeyArray, visible: Float[Array, "visible row"], rows: int, samples: int
) -> RowStatistics:
    """What the weights of all rows tell, `rows` of them at a time, each portion with a key of its own."""
    return weights.row_statistics(in_portions(estimate, key, visible, rows, axis=1), samples)


def in_portions(
    function: Callable[[PRNGKeyArray, Array], Any],
    key: PRNGKeyArray,
    rows: Array,
    size: int,
    *,
    axis: int = 0,
) -> Any:
    """A function of (key, rows) on all rows, `size` at a time: its arrays [row, ...] joined, as NumPy's.

    Portions are always as large: one compilation serves, whatever the number of rows.
    """
    total, found = rows.shape[axis], []
    for start in range(0, total, size):
        own = _folded(key, np.uint32(start))
        places = np.arange(start, start + size) % total  # the last portion is filled up, then cut
        portion = rows if size == total else _taken(rows, places, axis)
        found.append(jax.tree.map(np.asarray, everywhere(function(own, portion))))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:total], *found)


_folded = jax.jit(jax.random.fold_in)
_taken = jax.jit(lambda rows, places, axis: jnp.take(rows, places, axis), static_argnums=2)
