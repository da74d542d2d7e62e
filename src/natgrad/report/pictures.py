"""The pictures of a run for its page: what was kept through training, and what its kind shows of the end."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from natgrad.core import PointMap, Sheet
from natgrad.data import load_settings
from natgrad.errors import InputError
from natgrad.evaluate.pictures import grid
from natgrad.models import registry
from natgrad.records import gallery
from natgrad.report.columns import spec_if_known
from natgrad.report.png import data_uri
from natgrad.report.reading import Record
from natgrad.training.run import load

LEVELS = 16  # gray values of a picture: more cost bytes, and `CLEAR`, the gaps' value, is none of them
_LARGEST = 4096  # values of a row beyond which it is not drawn


class Picture(NamedTuple):
    """A sheet as an address that holds the picture; `table` where its rows are not images.

    A table with as many columns as rows is a matrix, and stays `square`.
    """

    uri: str
    table: bool = False
    wide: bool = False
    square: bool = False


class Frame(NamedTuple):
    """The pictures at one evaluation by their captions."""

    epoch: float
    pictures: dict[str, Picture]


class PictureSection(NamedTuple):
    """A section of the page: a sentence, and pictures or maps by their captions."""

    text: str
    pictures: dict[str, Picture | PointMap]


class Pictures(NamedTuple):
    """All pictures of a run: through training, the sections of its kind by title, and what is missing."""

    frames: list[Frame]
    panels: dict[str, PictureSection]
    missing: str = ""


def run_pictures(record: Record) -> Pictures:
    """A run's pictures; what cannot be shown is said instead."""
    try:
        return Pictures(frames(record), drawn_panels(record))
    except InputError as error:
        return Pictures(frames(record), {}, f"Nothing more can be shown: {error}.")


def frames(record: Record) -> list[Frame]:
    """The gallery of a run; steps of which the trace knows nothing are left out, as are rows too large."""
    epochs = {row.get("step"): row["epoch"] for row in record.rows}
    found = []
    for step, sheets in gallery.pictures(record.folder):
        epoch = epochs.get(step)
        drawn = {name: _drawn(sheet) for name, sheet in sheets.items() if sheet.rows.shape[1] <= _LARGEST}
        if epoch is not None and drawn:
            found.append(Frame(epoch, drawn))
    return found


def drawn_panels(record: Record) -> dict[str, PictureSection]:
    """What the kind of a run's model shows of it, by title; an InputError says why nothing can be shown."""
    run, spec = load(record.folder), spec_if_known(record.config.model.kind)
    if spec is None:
        kind = record.config.model.kind
        raise InputError(f"the kind of model {kind!r} is not known here; install the package that has it")
    found = registry.resolve_reference(spec.kind).panels(run, load_settings(record.config.data))
    return {title: PictureSection(panel.text, _all(panel.sheets)) for title, panel in found.items()}


def _all(sheets: Mapping[str, Sheet | PointMap]) -> dict[str, Picture | PointMap]:
    for sheet in sheets.values():
        if isinstance(sheet, Sheet) and sheet.rows.shape[1] > _LARGEST:
            raise InputError(f"rows of {sheet.rows.shape[1]} values are too large to be drawn here")
    return {
        caption: _drawn(sheet) if isinstance(sheet, Sheet) else sheet for caption, sheet in sheets.items()
    }


def _drawn(sheet: Sheet) -> Picture:
    """Images side by side as one picture with clear gaps; rows that are not images as the table they are."""
    rows, shape = np.asarray(sheet.rows), sheet.image_shape
    coarse = np.round(np.clip(rows, 0, 1) * (LEVELS - 1)) / (LEVELS - 1)
    table = shape is None or shape[0] * shape[1] != rows.shape[1]
    if shape is not None and not table:
        columns = sheet.columns or max(1, round(np.sqrt(len(rows))))
        coarse = grid(coarse, shape, min(columns, len(rows)))
    wide = not table and coarse.shape[1] > 2 * coarse.shape[0]
    square = table and rows.shape[0] == rows.shape[1]
    uri = data_uri(np.round(coarse * 255).astype(np.uint8))  # gaps, 0.5, are `CLEAR`
    return Picture(uri, table, wide, square)
