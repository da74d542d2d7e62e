"""The pictures of a run for its page: dreams through training, and test rows beside their reconstructions."""

from typing import NamedTuple

import numpy as np

from natgrad.data import load as load_data
from natgrad.errors import InputError
from natgrad.evaluate.monitor import held_out
from natgrad.evaluate.pictures import grid
from natgrad.records import gallery
from natgrad.report.png import data_uri
from natgrad.report.reading import Record
from natgrad.training import load

PAIRS, COLUMNS = 20, 10
TOPS = {"means": 255, "samples": 1}  # the byte that means one
LEVELS = 16  # grey values of a picture: more cost bytes, and `CLEAR`, the gaps' value, is none of them
LARGEST = 4096  # values of a row beyond which it is not drawn


class Frame(NamedTuple):
    """The dreams at one evaluation, as addresses that hold the pictures."""

    epoch: float
    means: str
    samples: str


def frames(record: Record) -> list[Frame]:
    """The gallery of a run; steps of which the trace knows nothing are left out."""
    epochs = {row.get("step"): row["epoch"] for row in record.rows}
    found = [(epochs.get(step), images) for step, images in gallery.pictures(record.folder)]
    shape = shape_of(record)
    return [
        Frame(epoch, *(_sheet(images[kind][: gallery.PICTURES] / top, shape) for kind, top in TOPS.items()))
        for epoch, images in found
        if epoch is not None and 0 < images["means"].shape[1] <= LARGEST and len(images["means"])
    ]


def reconstructions(record: Record) -> dict[str, str]:
    """Test rows and what the posterior makes of them, in pictures by their captions.

    Images are shown in pairs, the row above its reconstruction; other rows as two tables side by side.
    """
    found = load(record.folder)
    data = found.config.data
    dataset = load_data(
        data.name, binarize=data.binarize, split_seed=data.split_seed, image_shape=data.image_shape
    )
    rows = np.asarray(held_out(dataset, dataset.test, seed=data.split_seed, limit=PAIRS)).T
    if data.binarize == "grey":
        rows = rows / dataset.levels
    if rows.shape[1] > LARGEST:
        raise InputError(f"rows of {rows.shape[1]} values are too large to be drawn here")
    means, shape = found.model.reconstruct(rows), shape_of(record)
    if shape is None:
        return {"test rows": _sheet(rows, None), "reconstructions": _sheet(means, None)}
    columns = min(COLUMNS, len(rows))
    starts = range(0, len(rows) - columns + 1, columns)
    pairs = {i: np.concatenate([part[i : i + columns] for part in (rows, means)]) for i in starts}
    return {f"test rows {i + 1} to {i + columns}": _sheet(pairs[i], shape, columns) for i in starts}


def shape_of(record: Record) -> tuple[int, int] | None:
    """Height and width of a run's images, if its rows are images."""
    noted, visible = record.notes.get("image_shape"), record.notes.get("visible")
    if not isinstance(noted, list) or len(noted) != 2 or not all(isinstance(n, int) and n > 0 for n in noted):
        return None
    return (noted[0], noted[1]) if noted[0] * noted[1] == visible else None


def _sheet(rows: np.ndarray, shape: tuple[int, int] | None, columns: int | None = None) -> str:
    """Images side by side as one picture with clear gaps; rows that are no images as the table they are."""
    coarse = np.round(np.clip(rows, 0, 1) * (LEVELS - 1)) / (LEVELS - 1)
    if shape is not None and shape[0] * shape[1] == rows.shape[1]:
        coarse = grid(coarse, shape, columns or round(np.sqrt(len(rows))))
    return data_uri(np.round(coarse * 255).astype(np.uint8))  # the grid's gaps are 0.5, which is `CLEAR`
