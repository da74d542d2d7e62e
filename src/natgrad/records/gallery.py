"""What a model looks like, kept through training: a few pictures at every evaluation.

`gallery/<step>.safetensors` holds one array of bytes for every sheet of pictures, [picture, value] from 0 to
255, under the sheet's caption; the file's metadata say how each is laid out. Above `KEPT` evaluations every
second one is dropped: a long training keeps between half of them and all, spread over the whole. Pictures
are never a reason to stop a training.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from natgrad.core import Sheet
from natgrad.records.state import opened
from natgrad.writing import write

PICTURES, KEPT = 25, 24
SHEETS = 8  # of one evaluation; more are neither kept nor read
_LARGEST = 1 << 24  # bytes of a file that can be one of ours: nothing larger is opened


def keep(folder: Path, step: int, sheets: Mapping[str, Sheet]) -> None:
    """Keep what a model looks like at a step; where there is nothing to see, or no room, nothing is kept."""
    from safetensors.numpy import save

    place = folder / "gallery"
    if not sheets or place.is_symlink():  # never into somebody else's folder
        return
    few = dict(list(sheets.items())[:SHEETS])
    layout = {name: {"image_shape": each.image_shape, "columns": each.columns} for name, each in few.items()}
    arrays = {name: _bytes(each.rows) for name, each in few.items()}
    with suppress(OSError):
        place.mkdir(exist_ok=True)
        write(place / f"{step:010d}.safetensors", save(arrays, {"sheets": json.dumps(layout)}))
        _thin(place)


def pictures(folder: Path) -> Iterator[tuple[int, dict[str, Sheet]]]:
    """(step, sheets by caption) of every evaluation kept, in order; what is damaged is left out."""
    from safetensors import SafetensorError

    for path in _files(folder / "gallery"):
        try:
            sheets = _read(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError):
            continue
        if sheets:
            yield int(path.stem), sheets


def _read(path: Path) -> dict[str, Sheet]:
    """The sheets of a file; any of several exceptions where it is not one of ours."""
    if path.stat().st_size > _LARGEST:
        return {}
    found = opened(path)
    layouts = json.loads(found.metadata()["sheets"])
    few = list(layouts.items())[:SHEETS]
    sheets = ((name, _sheet(found.get_tensor(name), layout)) for name, layout in few)
    return {name: sheet for name, sheet in sheets if sheet is not None}


def _sheet(array: np.ndarray, layout: Mapping[str, Any]) -> Sheet | None:
    """Nothing is believed because a file says so: a layout that does not fit is none."""
    if array.ndim != 2 or array.dtype != np.uint8 or not array.size:
        return None
    shape: Any = layout.get("image_shape")
    columns: Any = layout.get("columns")
    fits = _counts(shape) and len(shape) == 2 and shape[0] * shape[1] == array.shape[1]
    return Sheet(
        array[:PICTURES] / np.float32(255),
        (shape[0], shape[1]) if fits else None,
        columns if _counts([columns]) and columns <= PICTURES else None,
    )


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value > 0 for value in values)


def _bytes(rows: Any) -> np.ndarray:
    """Values in [0, 1] as bytes, row by row as the file wants them; one that is not a number is dark."""
    values = np.nan_to_num(np.asarray(rows, np.float32)[:PICTURES])
    return np.ascontiguousarray(np.round(np.clip(values, 0, 1) * 255).astype(np.uint8))


def _thin(place: Path) -> None:
    files = _files(place)
    if len(files) > KEPT:
        for path in files[1:-1:2]:
            path.unlink()


def _files(place: Path) -> list[Path]:
    return sorted(path for path in place.glob("*.safetensors") if path.stem.isdecimal())
