"""`load`: one call from a name or a path to a `Dataset`.

Three kinds of visible value are met in the literature: naturally binary, gray rounded once (B), and
gray taken as the mean of a Bernoulli unit that is drawn again at every use (C). A `Dataset` holds
bytes in all three cases; `value / levels` is the mean and `resample` says whether to draw. A fourth is
any real number, for inputs of networks and Gaussian units: then it holds float32.
"""

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from natgrad.data import user
from natgrad.data.catalogue import CATALOGUE, Entry, ImageShape
from natgrad.data.files import fetch
from natgrad.data.in_file import RowsInFile, SplitRows, Told
from natgrad.data.patterns import PatternDistribution
from natgrad.data.splits import SPLITS, Parts, generator
from natgrad.errors import InputError, unknown

BINARIZATIONS = ("round", "resample", "gray", "real")

_Values = NDArray[np.uint8] | NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Three splits of bytes (or float32, if real) [row, visible] and what they mean.

    Attributes:
        name: the catalogue name or the path.
        train: rows to learn from, for one of several hosts left in their file; valid: rows to choose by;
            test: rows to test on.
        levels: value / levels is the mean of a Bernoulli unit; 1 where values are in {0,1}.
        resample: whether rows are to be drawn from those means at every use.
        image_shape: (height, width) of a row, where rows are images.
        distribution: the exact distribution, where it is known.
        labels: the class of each row of each split, where the source has them.
        split: how the splits were made, with the sha256 of their bytes; fit for JSON.
    """

    name: str
    train: _Values | RowsInFile
    valid: _Values
    test: _Values
    levels: int
    resample: bool
    image_shape: ImageShape | None
    distribution: PatternDistribution | None
    labels: dict[str, np.ndarray] | None
    split: dict[str, Any]

    @property
    def visible(self) -> int:
        """The number of visible units."""
        return self.train.shape[1]

    @property
    def means(self) -> NDArray[np.float64]:
        """The mean of every visible unit over the training rows."""
        return average_of(self.train) / self.levels


def names() -> list[str]:
    """The names `load` knows."""
    return list(CATALOGUE)


def load(
    name: str | os.PathLike[str],
    *,
    binarize: str | None = None,
    split_seed: int = 0,
    image_shape: ImageShape | None = None,
    told: Told | None = None,
) -> Dataset:
    """Load a set by its catalogue name or by the path of a .npy, .npz or .csv file.

    Args:
        name: one of `names()`, or a path.
        binarize: "round" (1 where the mean exceeds 1/2), "resample", "gray" (means as they are, for
            networks), "real" (float32: means, or a user's values as they are), or None for the set's default.
        split_seed: seed of whatever part of the split is not published.
        image_shape: (height, width), for rows that are images and do not say so.
        told: for one of several hosts, how one tells the others (`natgrad.data.in_file`): then training rows
            are left in the file, where it allows that.

    Raises:
        InputError: a name, file or value that cannot be used, in one sentence.

    >>> data = load("3by3")
    >>> data.train.shape, data.levels, data.resample
    ((15000, 9), 1, False)
    """
    if binarize not in (None, *BINARIZATIONS):
        raise unknown("binarization", str(binarize), BINARIZATIONS)
    name = os.fspath(name)
    distribution = None
    if name in CATALOGUE:
        entry = chosen_entry(CATALOGUE[name], binarize)
        parts = entry.read([fetch(file) for file in entry.files], entry.visible, split_seed)
        levels, shape, default = entry.levels, entry.image_shape, entry.binarize
        distribution = entry.distribution() if entry.distribution else None
    elif Path(name).suffix or len(Path(name).parts) > 1:
        parts, levels, shape = user.read_user_file(
            Path(name), split_seed, rounding=binarize == "round", real=binarize == "real", told=told
        )
        default = "resample"
    else:
        raise unknown("data set", name, CATALOGUE)
    if binarize == "resample" and levels == 1:
        raise InputError(
            f"expected gray values in {name} to resample, its values are binary; leave data.binarize out"
        )
    shape = fitting(image_shape or shape, parts.rows["train"].shape[1])
    return assemble(
        name, parts, levels=levels, binarize=binarize or default, image_shape=shape, distribution=distribution
    )


def chosen_entry(entry: Entry, binarize: str | None) -> Entry:
    """The entry itself, or the one that has its gray values, if these are asked for."""
    return entry.in_gray if entry.in_gray and binarize in ("resample", "gray", "real") else entry


def assemble(
    name: str,
    parts: Parts,
    *,
    levels: int,
    binarize: str | None,
    image_shape: ImageShape | None,
    distribution: PatternDistribution | None,
) -> Dataset:
    """Binarize as asked and seal the splits with their checksums."""
    rows: dict[str, Any] = {split: np.ascontiguousarray(parts.rows[split]) for split in ("valid", "test")}
    train = parts.rows["train"]
    rows["train"] = train if isinstance(train, RowsInFile) else np.ascontiguousarray(train)
    if levels > 1 and binarize == "round":
        rows, levels = {split: rounded(array, levels) for split, array in rows.items()}, 1
    if binarize == "real":
        rows, levels = {split: means(array, levels) for split, array in rows.items()}, 1
    checksums = {split: checksum_of(rows[split]) for split in SPLITS}
    return Dataset(
        name=name,
        **rows,
        levels=levels,
        resample=levels > 1 and binarize != "gray",
        image_shape=image_shape,
        distribution=distribution,
        labels={split: parts.labels[split] for split in SPLITS} if parts.labels else None,
        split={**parts.record, "checksums": checksums},
    )


def means(rows: np.ndarray, levels: int) -> NDArray[np.float32]:
    """value / levels of bytes; real numbers are as they are.

    >>> means(np.array([0, 4, 16], np.uint8), 16).tolist()
    [0.0, 0.25, 1.0]
    """
    return rows.astype(np.float32) / np.float32(levels) if rows.dtype == np.uint8 else rows


def rounded(rows: NDArray[np.uint8], levels: int) -> NDArray[np.uint8]:
    """1 where value / levels > 1/2, which for whole numbers is value > levels // 2.

    >>> rounded(np.array([0, 8, 9, 16], np.uint8), 16).tolist()
    [0, 0, 1, 1]
    """
    return (rows > levels // 2).view(np.uint8)


def fitting(shape: ImageShape | None, visible: int) -> ImageShape | None:
    """The image shape, if it has as many pixels as there are visible units."""
    if shape is None:
        return None
    if len(shape) != 2 or min(shape) < 1 or math.prod(shape) != visible:
        raise InputError(
            f"expected an image shape of {visible} pixels, got {'x'.join(map(str, shape))}; "
            "give height and width whose product is the number of visible units"
        )
    return shape[0], shape[1]


_TOLD = 20  # labels that a message lists


def load_settings(chosen: Any, told: Told | None = None) -> Dataset:
    """The data that the `data` section of a config names; `told` as `load` has it."""
    dataset = load(
        chosen.name,
        binarize=getattr(chosen, "binarize", None),
        split_seed=chosen.split_seed,
        image_shape=chosen.image_shape,
        told=told,
    )
    if chosen.classes:
        dataset = of_classes(dataset, chosen.classes)
    asked = {"train": chosen.train_rows, "test": chosen.test_rows}
    sizes = {split: size for split, size in asked.items() if size}
    return of_sizes(dataset, sizes, chosen.split_seed) if sizes else dataset


def of_classes(dataset: Dataset, classes: Sequence[int]) -> Dataset:
    """The rows of every split that have one of these labels; labels stay as they are."""
    if dataset.labels is None:
        raise InputError(
            f"data.classes: expected data with labels, {dataset.name} has none; leave it out, or give labels"
        )
    known = sorted({label for labels in dataset.labels.values() for label in np.unique(labels).tolist()})
    if missing := [label for label in classes if label not in known]:
        told = ", ".join(map(str, known[:_TOLD])) + (", ..." if len(known) > _TOLD else "")
        raise InputError(
            f"data.classes: no row of {dataset.name} has the label {missing[0]}; choose from {told}"
        )
    places = {split: np.flatnonzero(np.isin(dataset.labels[split], classes)) for split in SPLITS}
    if empty := [split for split in SPLITS if not len(places[split])]:
        raise InputError(
            f"data.classes: no {empty[0]} row of {dataset.name} has one of these labels; choose others"
        )
    kept = _taken(dataset, places, {"classes": list(classes)})
    return replace(kept, distribution=None)  # which is known of all classes together


def of_sizes(dataset: Dataset, sizes: Mapping[str, int], seed: int) -> Dataset:
    """So many rows of some splits."""
    places = {}
    for split, size in sizes.items():
        count = len(getattr(dataset, split))
        if size > count:
            raise InputError(
                f"data.{split}_rows: expected at most the {count} {split} rows that {dataset.name} has, "
                f"got {size}; give fewer"
            )
        places[split] = np.sort(generator(seed).permutation(count)[:size])
    return _taken(dataset, places, {f"{split}_rows": size for split, size in sizes.items()})


def _taken(dataset: Dataset, places: Mapping[str, np.ndarray], record: dict[str, Any]) -> Dataset:
    """Some rows of some splits, with their labels, sealed again."""
    rows = {split: getattr(dataset, split)[chosen] for split, chosen in places.items()}
    labels = dataset.labels and dataset.labels | {
        split: dataset.labels[split][at] for split, at in places.items()
    }
    sealed = {split: checksum_of(array) for split, array in rows.items()}
    split = dataset.split | record | {"checksums": dataset.split["checksums"] | sealed}
    return replace(dataset, **rows, labels=labels, split=split)


def checksum_of(rows: SplitRows) -> str:
    """The sha256 of the bytes of rows."""
    return rows.checksum if isinstance(rows, RowsInFile) else hashlib.sha256(rows.data).hexdigest()


def average_of(rows: SplitRows, of: Callable[[np.ndarray], np.ndarray] = lambda block: block) -> np.ndarray:
    """The mean over rows of a function of them.

    >>> average_of(np.array([[0, 1], [1, 1]], np.uint8)).tolist()
    [0.5, 1.0]
    """
    if isinstance(rows, RowsInFile):
        return rows.average(of)
    found: np.ndarray = of(rows).mean(axis=0, dtype=float)
    return found
