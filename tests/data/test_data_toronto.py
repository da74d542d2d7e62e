"""Toronto faces: a file like the data set's own, written here, and one sentence for what is wrong with it."""

import re

import numpy as np
import pytest
import scipy.io
from scipy.ndimage import correlate1d

from natgrad.cli import data as command
from natgrad.data import load
from natgrad.data.toronto import halved
from natgrad.errors import InputError

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (12, 48, 48), dtype=np.uint8)
MARKS = np.array([0, 1, 2, 3, 0, 1, 1, 2, 3, 0, 1, 3])
FOLDS = np.stack([MARKS, *RANDOM.integers(0, 4, (4, 12))], axis=1).astype(np.uint8)


@pytest.fixture
def place(empty_folders, tmp_path, monkeypatch):
    """Where the file belongs."""
    monkeypatch.setenv("NATGRAD_DATA", str(tmp_path / "own"))
    (tmp_path / "own" / "faces").mkdir(parents=True)
    return tmp_path / "own" / "faces" / "TFD_48x48.mat"


def save(place, **changes):
    arrays = {"images": IMAGES, "folds": FOLDS, "labs_ex": np.ones((12, 1))}
    scipy.io.savemat(place, {name: value for name, value in (arrays | changes).items() if value is not None})


def halved_by_scipy(images):
    """The kernel as a correlation of four taps, between whose middle ones a pixel lies; borders repeat."""
    found = images.astype(float)
    for axis in (1, 2):
        found = correlate1d(found, np.array([-3, 19, 19, -3]) / 32, axis, mode="nearest", origin=-1)
    return np.clip(np.rint(found[:, ::2, ::2]), 0, 255).reshape(len(images), -1)


@pytest.mark.parametrize("compressed", [False, True])
def test_the_first_fold_splits_and_the_unlabeled_train(place, compressed):
    scipy.io.savemat(place, {"images": IMAGES, "folds": FOLDS}, do_compression=compressed)
    data = load("toronto-faces", split_seed=7)
    assert (data.levels, data.resample, data.image_shape, data.labels) == (255, True, (24, 24), None)
    assert data.train.dtype == np.uint8
    for split, marks in (("train", (0, 1)), ("valid", (2,)), ("test", (3,))):
        expected = halved_by_scipy(IMAGES[np.isin(MARKS, marks)])
        np.testing.assert_array_equal(getattr(data, split), expected)
    assert data.split["kind"] == "published"


def test_folds_may_be_floats_as_matlab_saves_them(place):
    save(place, folds=FOLDS.astype(float))
    assert len(load("toronto-faces").valid) == 2


def test_overshoots_are_cut():
    edge = np.zeros((1, 48, 48), np.uint8)
    edge[:, :, 24:] = 255
    small = halved(edge, np.arange(1)).reshape(24, 24)
    assert small[0, 10:14].tolist() == [0, 0, 255, 255]
    assert (halved(np.full((1, 48, 48), 77, np.uint8), np.arange(1)) == 77).all()


def test_a_missing_file_is_named(place):
    with pytest.raises(InputError, match=r"faces/TFD_48x48.mat was not found and has no public download"):
        load("toronto-faces")


WRONG = [
    ({"images": IMAGES / 255}, "expected 'images' of .* as bytes [face, 48, 48], got float64 [12, 48, 48]"),
    ({"images": IMAGES[:, :24]}, "expected 'images' of .* as bytes [face, 48, 48], got uint8 [12, 24, 48]"),
    ({"folds": FOLDS[:, :3]}, "expected 'folds' of .* as numbers [12, 5], got uint8 [12, 3]"),
    ({"folds": FOLDS + 1}, "expected 0, 1, 2 and 3 in 'folds' of .*, got others"),
    ({"folds": np.zeros_like(FOLDS)}, "expected valid faces in the first fold of .*, there are none"),
    ({"folds": None}, "expected the arrays images, folds in .*, 'folds' is not there"),
]


@pytest.mark.parametrize(("changes", "sentence"), WRONG)
def test_wrong_contents_are_said(place, changes, sentence):
    save(place, **changes)
    with pytest.raises(InputError, match=re.escape(sentence).replace(r"\.\*", ".*")):
        load("toronto-faces")


def test_other_files_are_said(place):
    place.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF")
    with pytest.raises(InputError, match=r"expected a MATLAB file of version 5, .* is another file"):
        load("toronto-faces")
    save(place)
    place.write_bytes(place.read_bytes()[:5000])
    with pytest.raises(InputError, match=r"expected a MATLAB file, .* cannot be read \(\w+\); get"):
        load("toronto-faces")


def test_check_says_that_no_checksum_is_known(place):
    save(place)
    record = command.check_set("toronto-faces")
    assert record["note"] == "no checksum of faces/TFD_48x48.mat is known: it was read only"
    assert record["rows"] == {"train": 7, "valid": 2, "test": 3}
    assert command.check_set("3by3")["note"] is None
    listed = {record["name"]: record for record in command.list_sets()}
    assert (listed["toronto-faces"]["rows"], listed["toronto-faces"]["where"]) == (None, "NATGRAD_DATA")
