"""Rows on the device and the batches drawn from them.

The whole training set lives on the device, as bytes or as real numbers. An epoch is a permutation of its
rows, a pure function of (key, epoch); batch number i takes rows i*b to (i+1)*b of it, so every batch is full.
Gray values are Bernoulli means, resampled whenever a row is drawn (the paper's "C"). Rows to evaluate on are
a random subset by the split's seed, since some published sets are sorted by class; they are made binary once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from natgrad.data.dataset import Dataset
from natgrad.data.in_file import RowsInFile, SplitRows
from natgrad.devices import placed
from natgrad.tree import pytree, static


@pytree
class StoredRows:
    """A set of rows on the device: real numbers, or bytes, of which value / levels is a Bernoulli mean."""

    values: UInt8[Array, "row visible"] | Float[Array, "row visible"]
    levels: int = static(default=1)
    resample: bool = static(default=False)


def on_device(values: SplitRows, levels: int = 1, resample: bool = False) -> StoredRows:
    """Move rows to the device, once: floats as float32, others as bytes; those left in a file wait there."""
    if isinstance(values, RowsInFile):
        waiting: Any = values
        return StoredRows(waiting, levels, resample)
    kind = jnp.float32 if values.dtype.kind == "f" else jnp.uint8
    return StoredRows(jnp.asarray(values, kind), levels, resample)


def rows_of(dataset: Dataset) -> StoredRows:
    """The training rows of a data set."""
    return on_device(dataset.train, dataset.levels, dataset.resample)


@partial(jax.jit, static_argnames="rows")
def permutation(key: PRNGKeyArray, epoch: Int[Array, ""] | int, rows: int) -> Int[Array, " row"]:
    """The order of rows in an epoch."""
    return jax.random.permutation(jax.random.fold_in(key, epoch), rows)


def take_batch(
    key: PRNGKeyArray, rows: StoredRows, indices: Int[Array, " batch"], dtype: jnp.dtype | type = jnp.float32
) -> Float[Array, "visible batch"]:
    """The chosen rows as they are, or drawn in {0,1} where they are means to resample, units-major."""
    stored = jax.lax.optimization_barrier(chosen_rows(rows.values, indices).T)  # faster in products
    chosen = placed(stored, None, "rows")
    if not rows.resample:
        return chosen.astype(dtype)
    uniform = jax.random.uniform(key, chosen.shape, dtype) * rows.levels
    return (uniform < chosen.astype(dtype)).astype(dtype)  # ~ Bernoulli(value / levels)


def chosen_rows(values: Array, indices: Int[Array, " batch"]) -> Array:
    """Some of the stored rows; where these are split over devices, each adds those that it has."""
    found = values[placed(indices, None)]
    return placed(found, *(None,) * found.ndim)


def in_order(size: int) -> Callable[..., Float[Array, "visible batch"]]:
    """How batch number `position` of an epoch's order is drawn."""

    def drawn(
        key: PRNGKeyArray, rows: StoredRows, order: Array, position: Array
    ) -> Float[Array, "visible batch"]:
        chosen = jax.lax.dynamic_slice(order, (position * size,), (size,))
        return take_batch(key, rows, chosen, jnp.zeros(()).dtype)

    return drawn


def order_of(number: int, *, seed: int, limit: int = 0) -> np.ndarray:
    """Up to `limit` (0: all) of so many rows, in an order that the seed decides."""
    return np.random.default_rng(seed).permutation(number)[: limit or None]


def binary_rows(dataset: Dataset, split: str, *, seed: int, limit: int = 0) -> Float[Array, "visible row"]:
    """Rows of a held-out split as {0,1} on the device; gray rows that are resampled are made binary once."""
    values: np.ndarray = getattr(dataset, split)
    order = order_of(len(values), seed=seed, limit=limit)
    kind = jnp.result_type(float)
    if not dataset.resample:
        return jnp.asarray(values[order].T.astype(kind))
    rows = on_device(values[order], dataset.levels, dataset.resample)
    return _taken(jax.random.key(seed), rows, np.arange(len(order)), kind)


_taken = jax.jit(take_batch, static_argnums=3)


def means_of(dataset: Dataset, split: str, *, seed: int, limit: int = 0) -> Float[np.ndarray, "row visible"]:
    """Rows of a held-out split as models of them take them: binary, or values as they are."""
    found = np.asarray(binary_rows(dataset, split, seed=seed, limit=limit)).T
    return found if dataset.resample else found / dataset.levels
