"""Fewer rows: of chosen classes, and so many of a split; the same for every kind of model."""

import numpy as np
import pytest

from natgrad import config
from natgrad.cli.dotted import take_settings, values
from natgrad.data import load, load_settings
from natgrad.errors import InputError
from natgrad.models import registry


def narrowed(**settings):
    named = {f"data.{name}": value for name, value in settings.items()}
    return load_settings(config.resolve({"data": "digits"} | named).data)


def rows_of(array):
    return {row.tobytes() for row in array}


def test_so_many_rows_are_chosen_at_random_and_a_smaller_choice_is_part_of_a_larger():
    whole, some, few = load("digits"), narrowed(train_rows=200, test_rows=50), narrowed(train_rows=20)
    assert (len(some.train), len(some.valid), len(some.test)) == (200, len(whole.valid), 50)
    assert rows_of(few.train) < rows_of(some.train) < rows_of(whole.train)
    np.testing.assert_array_equal(few.test, whole.test)
    assert len(np.unique(some.labels["train"])) == 10
    assert rows_of(narrowed(train_rows=20, split_seed=1).train) != rows_of(few.train)


def test_labels_and_checksums_are_those_of_the_rows():
    whole, some = load("digits"), narrowed(train_rows=20)
    labels = {row.tobytes(): label for row, label in zip(whole.train, whole.labels["train"], strict=True)}
    found = [labels[row.tobytes()] for row in some.train]
    np.testing.assert_array_equal(some.labels["train"], found)
    assert some.split["train_rows"] == 20
    assert some.split["checksums"]["train"] != whole.split["checksums"]["train"]
    assert some.split["checksums"]["test"] == whole.split["checksums"]["test"]


def test_chosen_classes_are_of_every_split():
    whole, some = load("digits"), narrowed(classes=(3, 5), train_rows=30)
    for split in ("train", "valid", "test"):
        assert set(some.labels[split]) == {3, 5}
    assert len(some.train) == 30
    np.testing.assert_array_equal(some.test, whole.test[np.isin(whole.labels["test"], (3, 5))])
    assert some.split["classes"] == [3, 5]


@pytest.mark.parametrize("kind", registry.FOLDERS)
def test_every_kind_reads_them_from_flags(kind):
    flags = ["--model", kind, "--data.train-rows", "7", "--data.test-rows", "6", "--data.classes", "3"]
    taken, rest = take_settings(flags, {"model"})
    settings = config.resolve(values(taken, {}))
    assert rest == []
    assert (settings.data.train_rows, settings.data.test_rows, settings.data.classes) == (7, 6, (3,))
    assert len(load_settings(settings.data).train) == 7


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"train_rows": 5000},
            "data.train_rows: expected at most the 1297 train rows that digits has, got 5000",
        ),
        ({"test_rows": 301}, "data.test_rows: expected at most the 300 test rows that digits has, got 301"),
        ({"train_rows": 0}, "data.train_rows: expected a number greater than 0, got 0"),
        ({"classes": (3, 11)}, "data.classes: no row of digits has the label 11; choose from 0, 1, 2, 3"),
        ({"classes": ()}, "data.classes: expected at least one whole number"),
        ({"name": "3by3", "classes": (1,)}, "data.classes: expected data with labels, 3by3 has none"),
    ],
)
def test_what_is_not_there_is_said_in_one_sentence(settings, words):
    with pytest.raises(InputError, match=words):
        narrowed(**settings)


def test_a_split_without_a_chosen_class_is_said(tmp_path):
    rows, labels = np.eye(6, dtype=np.uint8), np.array([0, 0, 0, 1, 1, 1])
    arrays = {name: rows for name in ("train", "valid", "test")}
    marks = {"train_labels": labels, "valid_labels": np.zeros(6, int), "test_labels": labels}
    np.savez(tmp_path / "own.npz", **arrays, **marks)
    with pytest.raises(InputError, match=r"no valid row of .* has one of these labels; choose others"):
        narrowed(name=str(tmp_path / "own.npz"), classes=(1,))
