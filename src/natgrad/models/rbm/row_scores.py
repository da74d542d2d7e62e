"""Pseudo-likelihoods of rows in NumPy, dense or sparse: one feature of every row, chosen by a hash of it.

A row has the same score whatever rows stand beside it, and rows that differ look at different features, so
that the mean over rows estimates the mean pseudo-likelihood. The cost of a row is that of W v.
"""

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.extmath import safe_sparse_dot


def nearest_binary(rows: Any) -> Any:
    """1 where a mean exceeds one half, otherwise 0; sparse rows stay sparse."""
    if not scipy.sparse.issparse(rows):
        return (rows > 0.5).astype(rows.dtype)
    found = rows.copy()
    found.data = (found.data > 0.5).astype(found.dtype)
    return found


def pseudo_scores(
    weights: np.ndarray, above: np.ndarray, below: np.ndarray, rows: Any, *, seed: int
) -> np.ndarray:
    """The number of features times log p(v_i | v without i) of one feature i, for binary rows.

    `weights` are [hidden, feature], `above` and `below` the biases of hidden and visible units.
    """
    chosen = hashed_features(rows, seed)
    change = 1 - 2 * _taken(rows, chosen)
    inputs = safe_sparse_dot(rows, weights.T) + above
    shifted = inputs + change[:, None] * weights.T[chosen]
    gain = change * below[chosen] + _softplus(shifted) - _softplus(inputs)
    return -rows.shape[1] * np.logaddexp(0, gain)


def hashed_features(rows: Any, seed: int) -> np.ndarray:
    """A feature for every row: a random linear hash of its values."""
    words = np.random.default_rng(seed).integers(2**64, size=rows.shape[1] + 1, dtype=np.uint64)
    hashes = np.asarray(rows.astype(np.uint64) @ words[1:]).ravel() + words[0]
    return ((hashes >> np.uint64(32)) * np.uint64(rows.shape[1]) >> np.uint64(32)).astype(np.intp)


def _taken(rows: Any, chosen: np.ndarray) -> np.ndarray:
    """One value of every row."""
    found = rows[np.arange(rows.shape[0]), chosen]
    return np.asarray(found.toarray() if scipy.sparse.issparse(found) else found).ravel()


def _softplus(inputs: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, inputs).sum(axis=1)
