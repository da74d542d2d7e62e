"""Rows to evaluate on: a random subset by the split's seed, since some published sets are sorted by class."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natgrad.data import Dataset, batches


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
    rows = batches.on_device(values[order], dataset.levels, dataset.resample)
    return _taken(jax.random.key(seed), rows, np.arange(len(order)), kind)


_taken = jax.jit(batches.take_batch, static_argnums=3)


def means_of(dataset: Dataset, split: str, *, seed: int, limit: int = 0) -> Float[np.ndarray, "row visible"]:
    """Rows of a held-out split as models of them take them: binary, or values as they are."""
    found = np.asarray(binary_rows(dataset, split, seed=seed, limit=limit)).T
    return found if dataset.resample else found / dataset.levels
