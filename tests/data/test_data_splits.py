"""Splits are disjoint, exhaustive, and a function of their seed alone."""

import numpy as np
import pytest

from natgrad.data import splits
from natgrad.errors import InputError

PEOPLE = np.repeat(np.arange(6), 10)

WAYS = {
    "at_random": lambda seed: splits.at_random(60, (40, 8, 12), seed),
    "in_blocks": lambda seed: splits.in_blocks(60, (11, 2, 2), seed),
    "per_group": lambda seed: splits.per_group(PEOPLE, (7, 1, 2), seed),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_split_is_a_partition_by_its_seed(way):
    first, again, other = way(0), way(0), way(1)
    assert sorted(np.concatenate(first).tolist()) == list(range(60))
    for one, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, same)
    assert any(set(a.tolist()) != set(b.tolist()) for a, b in zip(first, other, strict=True))


def test_random_split_of_today_is_that_of_tomorrow():
    assert [part.tolist() for part in splits.at_random(6, (3, 1, 2), 0)] == [[3, 2, 5], [4], [0, 1]]


def test_blocks_are_runs_of_frames():
    for part in splits.in_blocks(60, (11, 2, 2), 3):
        runs = part.reshape(-1, 4)
        np.testing.assert_array_equal(np.diff(runs, axis=1), 1)
        np.testing.assert_array_equal(runs[:, 0] % 4, 0)


def test_every_group_is_in_every_split():
    shuffled = np.random.default_rng(0).permutation(PEOPLE)
    for part, size in zip(splits.per_group(shuffled, (7, 1, 2), 0), (7, 1, 2), strict=True):
        np.testing.assert_array_equal(np.bincount(shuffled[part]), size)


def test_carved_rows_keep_their_labels():
    rows = {"train": np.arange(20)[:, None], "test": np.arange(20, 25)[:, None]}
    labels = {name: array[:, 0] * 10 for name, array in rows.items()}
    parts = splits.carved(rows, labels, 0, source="train", target="valid", size=6)
    assert parts.record == {"kind": "seeded", "seed": 0, "sizes": [14, 6, 5], "how": "valid drawn from train"}
    assert sorted(np.concatenate([parts.rows["train"], parts.rows["valid"]])[:, 0]) == list(range(20))
    for name in splits.SPLITS:
        np.testing.assert_array_equal(parts.rows[name][:, 0] * 10, parts.labels[name])


def test_mistakes_are_said():
    with pytest.raises(InputError, match=r"expected at least 3 rows .* got 2"):
        splits.tenths(2)
    with pytest.raises(InputError, match="expected a split seed of zero or more, got -1"):
        splits.generator(-1)
    with pytest.raises(InputError, match="expected more than 1 train rows to draw the valid rows from"):
        splits.carved({"train": np.zeros((1, 2))}, None, 0, source="train", target="valid", size=1)
