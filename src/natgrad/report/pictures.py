"""The pictures of a run for its page: dreams through training, and test rows beside their reconstructions."""

from collections.abc import Iterator
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
    return list(_frames([(epoch, images) for epoch, images in found if epoch is not None], shape_of(record)))


def _frames(
    found: list[tuple[float, dict[str, np.ndarray]]], shape: tuple[int, int] | None
) -> Iterator[Frame]:
    for epoch, images in found:
        count, pixels = images["means"].shape
        if not 0 < pixels <= LARGEST or not count:
            continue
        fitting = shape if shape and shape[0] * shape[1] == pixels else None
        columns = round(np.sqrt(count)) if fitting else 1
        means, samples = images["means"] / 255, np.minimum(images["samples"], 1)
        yield Frame(epoch, *(_sheet(each, fitting or (1, pixels), columns) for each in (means, samples)))


def reconstructions(record: Record) -> list[str]:
    """Test rows above what the posterior makes of them, in pictures of up to `COLUMNS` pairs."""
    found = load(record.folder)
    data = found.config.data
    dataset = load_data(
        data.name, binarize=data.binarize, split_seed=data.split_seed, image_shape=data.image_shape
    )
    rows = np.asarray(held_out(dataset, dataset.test, seed=data.split_seed, limit=PAIRS)).T
    if rows.shape[1] > LARGEST:
        raise InputError(f"rows of {rows.shape[1]} values are too large to be drawn here")
    shape = found.image_shape
    means = found.model.reconstruct(rows)
    columns = min(COLUMNS, len(rows)) if shape else 1
    pairs = [
        np.concatenate([part[i : i + columns] for part in (rows, means)])
        for i in range(0, len(rows) - columns + 1, columns)
    ]
    return [_sheet(pair, shape or (1, rows.shape[1]), columns) for pair in pairs]


def shape_of(record: Record) -> tuple[int, int] | None:
    """Height and width of a run's images, if its rows are images."""
    noted = record.notes.get("image_shape")
    if not isinstance(noted, list) or len(noted) != 2 or not all(isinstance(n, int) and n > 0 for n in noted):
        return None
    return noted[0], noted[1]


def _sheet(images: np.ndarray, shape: tuple[int, int], columns: int) -> str:
    """Images side by side as one picture with clear gaps."""
    coarse = np.round(images * (LEVELS - 1)) / (LEVELS - 1)
    sheet = np.round(grid(coarse, shape, columns) * 255).astype(np.uint8)  # the grid's gaps are 0.5: `CLEAR`
    return data_uri(sheet)
