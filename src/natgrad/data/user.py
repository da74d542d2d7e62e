"""A user's own file: .npy, .npz or .csv to three splits of bytes, or of real numbers.

Rows are vectors, or images where the array has three dimensions; `coding` says what values they may have. An
.npz may name its splits train, valid and test; whatever is missing is drawn by the split seed. Reading takes
at most twice the file's size and 64 MB of memory (five times, as real numbers): what would take more is
refused before it is read.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from natgrad.data import coding, splits
from natgrad.data.in_file import SplitRows, Told
from natgrad.data.splits import SPLITS, Parts
from natgrad.data.table import open_csv
from natgrad.data.unread import Unread, open_npy, open_npz
from natgrad.errors import InputError

LABELS = "_labels"
WIDEST = 1 << 20  # values of a row
SPARE = 32 << 20  # bytes beside twice the file's size; as much again is for blocks and whatever else is small
PER_ROW = 24  # bytes of its place in the order of a split that is drawn


class UserData(NamedTuple):
    """The splits of a file with the meaning of their values."""

    parts: Parts
    levels: int
    image_shape: tuple[int, int] | None


def read_user_file(
    path: Path, seed: int, *, rounding: bool = False, real: bool = False, told: Told | None = None
) -> UserData:
    """Read a user's file, check it, and split it where it is not split; rounded or real, if asked.

    With `told` rows are left in the file where it allows that (`natgrad.data.in_file`).
    """
    arrays = open_arrays(path)
    rows = {
        name: array._replace(what=f"{name!r} of {path}")
        for name, array in arrays.items()
        if not name.endswith("labels")
    }
    for array in rows.values():
        check_rows(array)
    if len(shapes := {array.shape[1:] for array in rows.values()}) > 1:
        raise InputError(
            f"expected splits of one width in {path}, got {sorted(shapes)}; give all rows the same one"
        )
    shape = shapes.pop()
    labels = {name.removesuffix(LABELS): array for name, array in arrays.items() if name.endswith("labels")}
    check_labels(labels, rows, path)
    check_memory(rows, labels, path, real=real)
    coded, levels = (
        (coding.as_real(rows, path, told=told), 1)
        if real
        else coding.encode(rows, path, rounding=rounding, told=told)
    )
    marks = {name: array.whole() for name, array in labels.items()}
    return UserData(
        with_all_splits(coded, marks or None, seed), levels, (shape[0], shape[1]) if len(shape) == 2 else None
    )


def open_arrays(path: Path) -> dict[str, Unread]:
    """The arrays of a file by split; one array alone is called "rows"."""
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".npz", ".csv"):
        raise InputError(
            f"expected a file ending in .npy, .npz or .csv, got {str(path)!r}; save the data as one of these"
        )
    if not os.path.isfile(path):  # which also takes a name too long for the system, unlike Path
        raise InputError(f"expected a data file at {path}, there is none; check the path")
    if suffix == ".npz":
        return named_arrays(open_npz(path), path)
    return {"rows": open_npy(path) if suffix == ".npy" else open_csv(path)}


def named_arrays(arrays: Mapping[str, Unread], path: Path) -> dict[str, Unread]:
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


def check_rows(array: Unread) -> None:
    """Raise for anything but numbers in rows or images."""
    if array.dtype.kind not in "buif":
        raise InputError(
            f"expected numbers in {array.what}, got the type {array.dtype}; convert them to floats or bytes"
        )
    if len(array.shape) not in (2, 3):
        raise InputError(
            f"expected [rows, visible] or [rows, height, width] in {array.what}, "
            f"got the shape {array.shape}; reshape it"
        )
    if 0 in array.shape:
        raise InputError(
            f"expected rows in {array.what}, got the shape {array.shape}; give a set that is not empty"
        )
    if (width := math.prod(array.shape[1:])) > WIDEST:
        raise InputError(
            f"expected rows of at most {WIDEST} values in {array.what}, got {width}; make them smaller"
        )


def check_labels(labels: Mapping[str, Unread], rows: Mapping[str, Unread], path: Path) -> None:
    """Raise unless there is one label for each row of each split, or none at all."""
    expected = {name: (array.shape[0],) for name, array in rows.items()}
    if labels and (got := {name: array.shape for name, array in labels.items()}) != expected:
        raise InputError(
            f"expected one label for each row in {path}, rows {expected}, got labels {got}; correct them"
        )


def check_memory(
    rows: Mapping[str, Unread], labels: Mapping[str, Unread], path: Path, *, real: bool = False
) -> None:
    """Raise if what is kept, one byte a value (real: four), takes more than the file's size allows.

    Then the file was compressed.
    """
    there = path.stat().st_size
    times, width = (5, 4) if real else (2, 1)
    kept = width * sum(array.size for array in rows.values())
    kept += max(array.held for array in rows.values())
    if set(rows) != set(SPLITS):
        kept += PER_ROW * max(array.shape[0] for array in rows.values())
    kept += sum(2 * array.size * array.dtype.itemsize for array in labels.values())
    if kept > times * there + SPARE:
        raise InputError(
            f"expected a file that is read in at most {'five times' if real else 'twice'} its size and 64 MB "
            f"of memory, {path} of {there} bytes takes {kept}; save it with numpy.savez, which does not "
            "compress"
        )


def with_all_splits(rows: dict[str, SplitRows], labels: dict[str, np.ndarray] | None, seed: int) -> Parts:
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
