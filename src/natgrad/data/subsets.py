"""Fewer rows of a data set: those of chosen classes, and so many of each split.

Rows are chosen at random by the split's seed, never "the first n" of a file: some sources are sorted by
class. A smaller choice is part of a larger one. What is left is in the split's order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from natgrad.data.dataset import Dataset, load
from natgrad.data.in_file import Told, checksum_of
from natgrad.data.splits import SPLITS, generator
from natgrad.errors import InputError

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
