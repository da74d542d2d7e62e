"""The loss of a model that knows how often each value is one, and nothing of how values go together.

A training that stays above it has learned less than that.
"""

import numpy as np

from natgrad.data.dataset import Dataset


def independent_loss(dataset: Dataset) -> float:
    """-E log p(x) of independent units with the means of the training rows, in nats: the sum of entropies."""
    return float(sum(_entropy(np.stack([dataset.means, 1 - dataset.means]))))


def class_loss(labels: np.ndarray) -> float:
    """-E log p(class) of the classes' frequencies, in nats."""
    return float(_entropy(np.unique(labels, return_counts=True)[1] / len(labels)))


def _entropy(shares: np.ndarray) -> np.ndarray:
    """-sum p log p over the first axis, in nats."""
    return -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=0) + 0.0
