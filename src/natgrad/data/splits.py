"""Splits: which rows train, which choose, which test.

A split is part of the data, not of a run, so it has its own seed and its own record; the same seed
gives the same rows on every machine. Published splits are kept as they are. Where a source gives
none, or lacks one, rows are drawn at random, never "the first n": some sources are sorted by class.
Rows that resemble each other (frames of a film, portraits of one person) are drawn in their groups.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from natgrad.data.in_file import RowsInFile, SplitRows
from natgrad.errors import InputError

SPLITS = ("train", "valid", "test")
MOVED = 8 << 20  # bytes of rows that are moved at a time
Indices = Sequence[NDArray[np.intp]]


class Parts(NamedTuple):
    """Three splits, the labels of their rows where there are any, and how they were made."""

    rows: Mapping[str, Any]  # arrays, or rows that are left in a file
    labels: dict[str, np.ndarray] | None
    record: dict[str, Any]


def generator(seed: int) -> np.random.Generator:
    """The one source of randomness of a split."""
    if seed < 0:
        raise InputError(f"expected a split seed of zero or more, got {seed}; give another seed")
    return np.random.Generator(np.random.PCG64(seed))


def at_random(count: int, sizes: Sequence[int], seed: int) -> Indices:
    """Disjoint index sets of the given sizes that together hold 0, ..., count - 1.

    >>> [len(part) for part in at_random(10, (7, 1, 2), seed=0)]
    [7, 1, 2]
    """
    assert sum(sizes) == count
    return np.split(generator(seed).permutation(count), np.cumsum(sizes)[:-1])


def in_blocks(count: int, blocks: Sequence[int], seed: int) -> Indices:
    """As `at_random`, for a film: it is cut into sum(blocks) runs of frames and whole runs are drawn."""
    runs = np.array_split(np.arange(count), sum(blocks))
    return [np.concatenate([runs[run] for run in part]) for part in at_random(len(runs), blocks, seed)]


def per_group(groups: np.ndarray, sizes: Sequence[int], seed: int) -> Indices:
    """As `at_random` within every group: each split holds sizes[split] rows of each group."""
    order = generator(seed).permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")].reshape(-1, sum(sizes))
    return [part.reshape(-1) for part in np.split(order, np.cumsum(sizes)[:-1], axis=1)]


def tenths(count: int) -> tuple[int, int, int]:
    """Sizes of an 80/10/10 split with no part empty.

    >>> tenths(1000), tenths(3)
    ((800, 100, 100), (1, 1, 1))
    """
    if count < 3:
        raise InputError(f"expected at least 3 rows to make three splits of, got {count}; give more rows")
    tenth = max(1, count // 10)
    return count - 2 * tenth, tenth, tenth


def published(rows: Mapping[str, SplitRows], labels: Mapping[str, np.ndarray] | None = None) -> Parts:
    """The source's own splits."""
    return Parts(dict(rows), dict(labels) if labels else None, {"kind": "published"})


def apart(rows: SplitRows, indices: Indices) -> Sequence[SplitRows]:
    """The parts of an array, which hold all its rows; these move within it, if it may be written.

    >>> [part.tolist() for part in apart(np.array([[0], [1], [2]]), (np.array([2, 0]), np.array([1])))]
    [[[2], [0]], [[1]]]
    """
    if isinstance(rows, RowsInFile):
        return [rows[index] for index in indices]
    order, ends = np.concatenate(indices), np.cumsum([len(index) for index in indices])[:-1]
    if not rows.flags.writeable:
        return np.split(rows[order], ends)
    step = max(1, MOVED // (len(rows) * rows.itemsize))
    for start in range(
        0, rows.shape[1], step
    ):  # a few columns at a time: a copy of all takes its memory again
        rows[:, start : start + step] = rows[order, start : start + step]
    return np.split(rows, ends)


def drawn(rows: SplitRows, labels: np.ndarray | None, indices: Indices, seed: int, how: str) -> Parts:
    """All three splits taken out of one array, which is theirs from then on."""
    parts = dict(zip(SPLITS, apart(rows, indices), strict=True))
    marks = None if labels is None else {s: labels[i] for s, i in zip(SPLITS, indices, strict=True)}
    return Parts(parts, marks, seeded(parts, seed, how))


def carved(
    rows: Mapping[str, SplitRows],
    labels: Mapping[str, np.ndarray] | None,
    seed: int,
    *,
    source: str,
    target: str,
    size: int,
) -> Parts:
    """The source's splits, the missing one (`target`) drawn out of another (`source`) in its own memory."""
    count = len(rows[source])
    if not 0 < size < count:
        raise InputError(
            f"expected more than {count} {source} rows to draw the {target} rows from; give more"
        )
    indices = kept, given = at_random(count, (count - size, size), seed)
    parts = {**rows, **dict(zip((source, target), apart(rows[source], indices), strict=True))}
    marks = {**labels, source: labels[source][kept], target: labels[source][given]} if labels else None
    return Parts(parts, marks, seeded(parts, seed, f"{target} drawn from {source}"))


def seeded(parts: Mapping[str, SplitRows], seed: int, how: str) -> dict[str, Any]:
    """The record of a split made here."""
    return {"kind": "seeded", "seed": seed, "sizes": [len(parts[name]) for name in SPLITS], "how": how}


def evenly(marks: np.ndarray, size: int, seed: int) -> Indices:
    """`size` of the rows, and the others: each mark has its share of both, as evenly as it goes.

    >>> chosen, rest = evenly(np.repeat([0, 1], 7), 10, seed=0)
    >>> len(rest), np.bincount(np.repeat([0, 1], 7)[chosen]).tolist()
    (4, [5, 5])
    """
    count = len(marks)
    order = generator(seed).permutation(count)
    order = order[np.argsort(marks[order], kind="stable")]
    places = np.arange(size) * count // size
    return order[places], np.delete(order, places)
