"""A user's own file: .npy, .npz or .csv to three splits of bytes.

Rows are vectors, or images where the array has three dimensions. Values are means in [0, 1], bytes
0..255 (uint8 only, so that counts are not mistaken for grey), or exactly {-1, +1}. An .npz may name
its splits train, valid and test; whatever is missing is drawn by the split seed.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from natgrad.data import formats, splits
from natgrad.data.splits import SPLITS, Parts
from natgrad.errors import InputError

GREY = 255
LABELS = "_labels"


class UserData(NamedTuple):
    """The splits of a file with the meaning of their values."""

    parts: Parts
    levels: int
    image_shape: tuple[int, int] | None


def read(path: Path, seed: int) -> UserData:
    """Read a user's file, check it, and split it where it is not split."""
    arrays = read_arrays(path)
    rows = {name: array for name, array in arrays.items() if not name.endswith("labels")}
    for name, array in rows.items():
        check_rows(array, f"{name!r} of {path}")
    if len(shapes := {array.shape[1:] for array in rows.values()}) > 1:
        raise InputError(
            f"expected splits of one width in {path}, got {sorted(shapes)}; give all rows the same one"
        )
    shape = shapes.pop()
    coded, levels = encode({name: array.reshape(len(array), -1) for name, array in rows.items()}, path)
    labels = {name.removesuffix(LABELS): array for name, array in arrays.items() if name.endswith("labels")}
    parts = complete(coded, check_labels(labels, coded, path), seed)
    return UserData(parts, levels, (shape[0], shape[1]) if len(shape) == 2 else None)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by split; one array alone is called "rows"."""
    readers = {".npy": formats.read_npy, ".csv": read_csv}
    suffix = path.suffix.lower()
    if suffix not in (*readers, ".npz"):
        raise InputError(
            f"expected a file ending in .npy, .npz or .csv, got {str(path)!r}; save the data as one of these"
        )
    if not os.path.isfile(path):  # which also takes a name too long for the system, unlike Path
        raise InputError(f"expected a data file at {path}, there is none; check the path")
    return named(formats.read_npz(path), path) if suffix == ".npz" else {"rows": readers[suffix](path)}


def named(arrays: Mapping[str, np.ndarray], path: Path) -> dict[str, np.ndarray]:
    """Which arrays of an .npz are rows and which are their labels."""
    if "train" in arrays:
        return {name: array for name, array in arrays.items() if name.removesuffix(LABELS) in SPLITS}
    labels = {"rows" + LABELS: arrays["labels"]} if "labels" in arrays else {}
    rest = {name: array for name, array in arrays.items() if name != "labels"}
    if "images" in rest:
        return {"rows": rest["images"], **labels}
    if len(rest) == 1:
        return {"rows": next(iter(rest.values())), **labels}
    raise InputError(
        f"expected arrays named train, valid, test, or images, or one array alone, in {path}, "
        f"got {', '.join(sorted(arrays)) or 'none'}; rename them"
    )


def read_csv(path: Path) -> np.ndarray:
    """Numbers separated by commas, below a line of names or not."""
    try:
        with path.open(encoding="utf-8-sig") as stream:
            lines = [line for line in stream if line.strip()]
        lines = lines if not lines or is_numeric(lines[0]) else lines[1:]
        return np.loadtxt(lines, delimiter=",", ndmin=2, comments=None) if lines else np.empty((0, 0))
    except OSError as error:
        raise InputError(
            f"expected a readable file, {path} is not ({error.strerror}); check its permissions"
        ) from error
    except ValueError as error:
        reason = str(error).split("; use")[0].rstrip(".")
        raise InputError(
            f"expected numbers separated by commas in {path}, got others ({reason}); correct the file"
        ) from error


def is_numeric(line: str) -> bool:
    """Whether every cell of the line is a number."""
    try:
        [float(cell) for cell in line.split(",")]
    except ValueError:
        return False
    return True


def check_rows(array: np.ndarray, what: str) -> None:
    """Raise for anything but finite numbers in rows or images."""
    if array.dtype.kind not in "buif":
        raise InputError(
            f"expected numbers in {what}, got the type {array.dtype}; convert them to floats or bytes"
        )
    if array.ndim not in (2, 3):
        raise InputError(
            f"expected [rows, visible] or [rows, height, width] in {what}, "
            f"got the shape {array.shape}; reshape it"
        )
    if array.size == 0:
        raise InputError(
            f"expected rows in {what}, got the shape {array.shape}; give a set that is not empty"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"expected finite numbers in {what}, got NaN or infinity; remove or replace them")


def encode(rows: Mapping[str, np.ndarray], path: Path) -> tuple[dict[str, np.ndarray], int]:
    """All splits in one code: bytes in {0,1} with levels 1, or grey bytes with levels 255."""
    arrays = rows.values()
    low, high = min(a.min() for a in arrays), max(a.max() for a in arrays)
    if low == -1 and all(np.isin(a, (-1, 1)).all() for a in arrays):
        return {name: (array > 0).astype(np.uint8) for name, array in rows.items()}, 1
    if all(a.dtype == np.uint8 for a in arrays) and high > 1:
        return dict(rows), GREY
    if low < 0 or high > 1:
        raise InputError(
            f"expected values in [0, 1], bytes 0..255 as uint8, or exactly -1 and +1 in {path}, "
            f"got {low:.9g} to {high:.9g}; rescale them"
        )
    if all(((a == 0) | (a == 1)).all() for a in arrays):
        return {name: array.astype(np.uint8) for name, array in rows.items()}, 1
    return {name: to_bytes(array) for name, array in rows.items()}, GREY


def to_bytes(means: np.ndarray) -> np.ndarray:
    """The nearest of 256 levels, halves down, so that rounding later still asks for more than 1/2."""
    return np.ceil(means.astype(np.float64) * GREY - 0.5).astype(np.uint8)


def check_labels(
    labels: dict[str, np.ndarray], rows: Mapping[str, np.ndarray], path: Path
) -> dict[str, np.ndarray] | None:
    """The labels, one for each row of each split, or None where there are none."""
    if not labels:
        return None
    expected = {name: (len(array),) for name, array in rows.items()}
    if (got := {name: array.shape for name, array in labels.items()}) != expected:
        raise InputError(
            f"expected one label for each row in {path}, rows {expected}, got labels {got}; correct them"
        )
    return labels


def complete(rows: dict[str, np.ndarray], labels: dict[str, np.ndarray] | None, seed: int) -> Parts:
    """Three splits out of those the file has."""
    missing = [name for name in SPLITS if name not in rows]
    if not missing:
        return splits.published(rows, labels)
    if missing == ["valid"]:
        size = max(1, len(rows["train"]) // 10)
        return splits.carved(rows, labels, seed, source="train", target="valid", size=size)
    if missing == ["test"]:
        size = len(rows["valid"]) // 2
        return splits.carved(rows, labels, seed, source="valid", target="test", size=size)
    only = next(iter(rows))
    indices = splits.at_random(len(rows[only]), splits.tenths(len(rows[only])), seed)
    return splits.drawn(rows[only], labels[only] if labels else None, indices, seed, "drawn at random")
