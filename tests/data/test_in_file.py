"""Rows that stay in their file: each host reads its own, and one looks through all."""

import numpy as np
import pytest

from natgrad.data import load
from natgrad.data.dataset import average_of
from natgrad.data.in_file import RowsInFile
from natgrad.errors import InputError

DRAW = np.random.default_rng(0)
GRAY = DRAW.integers(0, 256, (40, 2, 3)).astype(np.uint8)
SIGNED = np.where(DRAW.random((40, 6)) < 0.5, -1.0, 1.0)
FILES = {
    "published.npz": {"train": GRAY, "valid": GRAY[:5], "test": GRAY[5:9]},
    "unsplit.npz": {"images": SIGNED, "labels": np.arange(40)},
    "by_column.npz": {"images": np.asfortranarray(SIGNED)},
    "compressed.npz": {"images": SIGNED},
    "alone.npy": SIGNED / 4 + 0.5,
    "lines.csv": SIGNED,
}
LEFT = ("published.npz", "unsplit.npz", "by_column.npz", "alone.npy")  # the others are read whole


def written(folder, name):
    path, content = folder / name, FILES[name]
    if name.endswith(".csv"):
        np.savetxt(path, content, delimiter=",")
    elif name.endswith(".npy"):
        np.save(path, content)
    else:
        (np.savez_compressed if name == "compressed.npz" else np.savez)(path, **content)
    return path


def told(make):
    return make()


@pytest.mark.parametrize("binarize", [None, "real"])
@pytest.mark.parametrize("name", FILES)
def test_rows_that_are_left_in_a_file_are_those_that_are_read(tmp_path, name, binarize):
    path = written(tmp_path, name)
    read, left = load(path, binarize=binarize), load(path, binarize=binarize, told=told)
    assert isinstance(left.train, RowsInFile) == (name in LEFT)
    assert (left.levels, left.visible, left.split) == (read.levels, read.visible, read.split)
    assert left.train.dtype == read.train.dtype
    np.testing.assert_array_equal(np.asarray(left.train), read.train)
    np.testing.assert_array_equal(left.valid, read.valid)
    np.testing.assert_allclose(left.means, read.means, rtol=1e-15)


class Watched:
    """An array that notes which of its rows are read."""

    def __init__(self, values):
        self.values, self.shape, self.itemsize, self.seen = values, values.shape, values.itemsize, []

    def __getitem__(self, places):
        self.seen += list(places)
        return self.values[places]


def unsigned(block):
    return block > 0


def test_only_the_rows_that_are_asked_for_are_read():
    stored, places = Watched(SIGNED), DRAW.permutation(40)[:30]
    rows = RowsInFile(stored, places, unsigned, np.dtype(np.uint8), told)
    share = rows[10:20]
    assert (len(rows), share.shape, stored.seen) == (30, (10, 6), [])
    np.testing.assert_array_equal(np.asarray(share), SIGNED[places[10:20]] > 0)
    assert stored.seen == list(places[10:20])


def test_a_host_that_is_told_does_not_look():
    stored = Watched(SIGNED)
    answers = iter(["abc", [15.0] * 6])
    rows = RowsInFile(stored, np.arange(30), unsigned, np.dtype(np.uint8), lambda make: next(answers))
    assert rows.checksum == "abc"
    assert average_of(rows).tolist() == [0.5] * 6
    assert stored.seen == []


def test_what_one_host_refuses_is_refused(tmp_path):
    np.save(tmp_path / "bad.npy", SIGNED + np.nan)
    with pytest.raises(InputError, match="expected finite numbers"):
        load(tmp_path / "bad.npy", told=told)
