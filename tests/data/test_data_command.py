"""What `natgrad data` prints: the listing, the fetching, the checking."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from natgrad.cli import data as command
from natgrad.data.catalogue import CATALOGUE
from natgrad.data.files import File
from natgrad.data.sources import packed
from natgrad.errors import InputError


@pytest.fixture
def tiny(empty_folders, monkeypatch):
    """A set of one file in the cache, in place of nltcs."""
    rows = {name: np.full((4, 2), 7, np.uint8) for name in ("train", "valid", "test")}
    path = empty_folders / "binary" / "tiny.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, **rows)
    file = File("binary/tiny.npz", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setitem(CATALOGUE, "nltcs", replace(CATALOGUE["nltcs"], files=(file,)))
    return path


def test_listing_needs_no_file(empty_folders):
    sets = {record["name"]: record for record in command.list_sets()}
    assert list(sets) == list(CATALOGUE)
    assert {name: sets[name]["where"] for name in ("digits", "3by3", "mnist", "nltcs")} == {
        "digits": "embedded",
        "3by3": "embedded",
        "mnist": "download",
        "nltcs": "missing",
    }
    assert sets["digits"]["rows"] == {"train": 1297, "valid": 200, "test": 300}
    assert (sets["digits"]["binarize"], sets["mnist"]["binarize"], sets["nltcs"]["binarize"]) == (
        "round",
        "resample",
        "binary",
    )
    assert json.loads(json.dumps(sets)) == sets


def test_listing_names_the_farthest_file(tiny, monkeypatch):
    assert command.place(CATALOGUE["nltcs"]) == "cache"
    partly = replace(CATALOGUE["nltcs"], files=(*CATALOGUE["nltcs"].files, File("none.npz", "0")))
    assert command.place(partly) == "missing"
    monkeypatch.setenv("NATGRAD_DATA", str(tiny.parents[1]))
    assert command.place(CATALOGUE["nltcs"]) == "NATGRAD_DATA"


def test_get_and_check(tiny):
    assert command.get("nltcs") == {"name": "nltcs", "where": "cache", "paths": [str(tiny)]}
    record = command.check_set("nltcs")
    assert (record["ok"], record["visible"], record["rows"]) == (
        True,
        16,
        {"train": 4, "valid": 4, "test": 4},
    )
    bits = np.unpackbits(np.full((4, 2), 7, np.uint8), axis=1)
    assert record["checksums"]["train"] == hashlib.sha256(bits.tobytes()).hexdigest()
    assert command.get("3by3") == {"name": "3by3", "where": "embedded", "paths": []}


def test_problems_are_said(tiny):
    with pytest.raises(InputError, match="unknown data set 'mnits'; did you mean 'mnist'"):
        command.check_set("mnits")
    with pytest.raises(InputError, match="unknown data set"):
        command.get("digit")
    with pytest.raises(InputError, match="was not found and has no public download"):
        command.get("plants")
    tiny.write_bytes(b"damaged")
    with pytest.raises(InputError, match="expected the sha256"):
        command.check_set("nltcs")


def test_a_sound_file_with_the_wrong_contents_is_said(tmp_path):
    np.savez(tmp_path / "a.npz", train=np.zeros((1, 2), np.uint8))
    with pytest.raises(
        InputError, match=r"expected the arrays train, valid, test in .*, 'valid' is not there"
    ):
        packed([tmp_path / "a.npz"], 16, 0)
