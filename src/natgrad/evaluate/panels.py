"""Sections of a report that several kinds of model share."""

from typing import Any

import numpy as np

from natgrad.core import Panel, PointMap, Sheet
from natgrad.data import Dataset
from natgrad.data.batches import means_of, order_of
from natgrad.errors import InputError

PAIRS, _COLUMNS = 20, 10
_LARGEST = 4096  # values of a row beyond which it is not drawn
_POINTS, _CLASSES = 1000, 40  # of a map, at most


def reconstructions(run: Any, dataset: Dataset, text: str) -> Panel:
    """Test rows and what the run's model makes of them.

    Images are shown in pairs, the row above its reconstruction; other rows as two tables side by side.
    """
    rows = means_of(dataset, "test", seed=run.config.data.split_seed, limit=PAIRS)
    if rows.shape[1] > _LARGEST:
        raise InputError(f"rows of {rows.shape[1]} values are too large to be drawn here")
    shown, shape = run.model.reconstruct(rows), dataset.image_shape
    rows, means = in_unit_range(dataset, rows), in_unit_range(dataset, np.asarray(shown))
    if shape is None:
        return Panel(text, {"test rows": Sheet(rows), "reconstructions": Sheet(means)})
    columns = min(_COLUMNS, len(rows))
    starts = range(0, len(rows) - columns + 1, columns)
    pairs = {at: np.concatenate([part[at : at + columns] for part in (rows, means)]) for at in starts}
    return Panel(
        text, {f"test rows {at + 1} to {at + columns}": Sheet(pairs[at], shape, columns) for at in starts}
    )


def in_unit_range(dataset: Dataset, values: np.ndarray) -> np.ndarray:
    """Values as gray ones: real data that leave [0, 1] by their range in training."""
    train = np.asarray(dataset.train)
    low, high = float(train.min()), float(train.max())
    if dataset.train.dtype.kind != "f" or (low >= 0 and high <= 1):
        return values
    return ((values - low) / max(high - low, 1e-30)).clip(0, 1)


def planar_map(found: np.ndarray, dataset: Dataset, *, seed: int) -> PointMap:
    """What a model says of some test rows (`map_rows`), in a plane: two numbers, or two directions of more.

    The directions are those in which the rows vary most; lengths are kept, and so is the origin.
    """
    classes = None if dataset.labels is None else dataset.labels["test"]
    if classes is not None and (classes.dtype.kind not in "iu" or len(np.unique(classes)) > _CLASSES):
        classes = None
    if classes is not None:
        classes = classes[order_of(len(classes), seed=seed, limit=_POINTS)]
    if found.shape[1] > 2:
        _, _, directions = np.linalg.svd(found - found.mean(axis=0), full_matrices=False)
        found = found @ directions[:2].T
    elif found.shape[1] == 1:
        found = np.column_stack([found[:, 0], np.zeros(len(found))])
    return PointMap(found, classes)


def map_rows(dataset: Dataset, *, seed: int) -> np.ndarray:
    """The test rows of a map."""
    return means_of(dataset, "test", seed=seed, limit=_POINTS)
