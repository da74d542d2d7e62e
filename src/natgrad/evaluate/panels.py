"""Sections of a report that several kinds of model share."""

from typing import Any

import numpy as np

from natgrad.core import Panel, Sheet
from natgrad.data import Dataset
from natgrad.errors import InputError
from natgrad.evaluate.held_out import means_of

PAIRS, _COLUMNS = 20, 10
_LARGEST = 4096  # values of a row beyond which it is not drawn


def reconstructions(run: Any, dataset: Dataset, text: str) -> Panel:
    """Test rows and what the run's model makes of them.

    Images are shown in pairs, the row above its reconstruction; other rows as two tables side by side.
    """
    rows = means_of(dataset, "test", seed=run.config.data.split_seed, limit=PAIRS)
    if rows.shape[1] > _LARGEST:
        raise InputError(f"rows of {rows.shape[1]} values are too large to be drawn here")
    means, shape = np.asarray(run.model.reconstruct(rows)), dataset.image_shape
    if shape is None:
        return Panel(text, {"test rows": Sheet(rows), "reconstructions": Sheet(means)})
    columns = min(_COLUMNS, len(rows))
    starts = range(0, len(rows) - columns + 1, columns)
    pairs = {at: np.concatenate([part[at : at + columns] for part in (rows, means)]) for at in starts}
    return Panel(
        text, {f"test rows {at + 1} to {at + columns}": Sheet(pairs[at], shape, columns) for at in starts}
    )
