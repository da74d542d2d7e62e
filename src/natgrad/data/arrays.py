"""Arrays in memory as a data file that a run can be resumed from: `natgrad.train(data=X)`, `data=(X, y)`.

The file is named by its contents, so that trainings on the same arrays share it.
"""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from natgrad.data.splits import SPLITS
from natgrad.errors import InputError, unknown
from natgrad.writing import write

_DIGITS = 8  # of the checksum in the name of a file
_LABELS = tuple(map("{}_labels".format, SPLITS))
_NAMES = (*SPLITS, *_LABELS, "images", "labels")  # of the arrays in a dict


def is_in_memory(data: Any) -> bool:
    """Whether data are arrays, and not the name of a set or of a file."""
    return data is not None and not isinstance(data, str | Path)


def saved_arrays(data: Any, folder: Path) -> Path:
    """The file of arrays: rows, (rows, labels), or splits by name, each an array, a frame or a list.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> saved_arrays(([[0, 1], [1, 1]], [5, 6]), place) == saved_arrays(([[0, 1], [1, 1]], [5, 6]), place)
    True
    """
    arrays = {name: _array(value, name) for name, value in _named(data).items()}
    _check_labels(arrays)
    found = hashlib.sha256()
    for name, array in arrays.items():
        found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).data)
    path = folder / f"array-{found.hexdigest()[:_DIGITS]}.npz"
    if not path.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write(path, _packed(arrays))
        except OSError as error:
            raise InputError(f"cannot write the data to {path}: {error.strerror}; give another out") from None
    return path


def _packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **dict[str, Any](arrays))
    return stream.getvalue()


def _named(data: Any) -> Mapping[str, Any]:
    """Arrays by the names that a file of them has."""
    if isinstance(data, Mapping):
        if not data:
            raise InputError("data: expected arrays by the names of their splits, got none; give train")
        for name in data:
            if name not in _NAMES:
                raise unknown("split", str(name), _NAMES)
        return data
    if isinstance(data, tuple):
        if len(data) != 2:
            raise InputError(
                f"data: expected (rows, labels), got {len(data)} arrays; give two, or a dict of splits"
            )
        return {"images": data[0], "labels": data[1]}
    return {"images": data}


def _array(value: Any, name: str) -> np.ndarray:
    """An array, out of a frame or series too; numbers only."""
    found = value.to_numpy() if hasattr(value, "to_numpy") else np.asarray(value)
    if found.dtype.kind not in "buif":
        what = "numbers, for classes 0, 1, 2, ..." if name.endswith("labels") else "numbers"
        raise InputError(f"data: expected {what} in {name}, got the type {found.dtype}; convert them")
    if not name.endswith("labels"):
        _check_rows(found, name)
    return found


def _check_labels(arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse labels of other rows."""
    for name, labels in arrays.items():
        rows = arrays.get("images" if name == "labels" else name.removesuffix("_labels"))
        if name.endswith("labels") and rows is not None and labels.shape != rows.shape[:1]:
            raise InputError(
                f"data: expected {len(rows)} {name}, one for each row, "
                f"got the shape {labels.shape}; correct them"
            )


def _check_rows(array: np.ndarray, name: str) -> None:
    """Refuse what no training takes before it is saved."""
    if array.ndim not in (2, 3) or not array.size:
        raise InputError(
            f"data: expected [rows, visible] or [rows, height, width] in {name}, "
            f"got the shape {array.shape}; give an array of rows, or the name of a data set"
        )
    if not np.isfinite(array).all():
        raise InputError(
            f"data: expected finite numbers in {name}, got NaN or infinity; remove or replace them"
        )
