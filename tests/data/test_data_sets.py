"""The named sets: exact distributions, oracles for what is computed, and what the files are known to hold."""

import json

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from natgrad.data import Dataset, load, names
from natgrad.data.catalogue import CATALOGUE
from natgrad.data.mini import shrink, shrink_gray, shrinking
from natgrad.data.patterns import PatternDistribution
from natgrad.errors import InputError

OWN = ["toronto-faces"]  # whose files are the user's: tests/data/test_data_toronto.py
FILED = [name for name in names() if CATALOGUE[name].files and name not in OWN]
EMBEDDED = [name for name in names() if not CATALOGUE[name].files]


def shrink_by_scipy(rows, side):
    images = rows.reshape(-1, side, side).astype(float)
    blurred = gaussian_filter(images, sigma=(0, 0.5, 0.5), mode="mirror", truncate=4)
    half = side // 2
    return blurred.reshape(-1, half, 2, half, 2).mean(axis=(2, 4)).reshape(len(rows), -1)


@pytest.mark.parametrize("side", [6, 28])
def test_shrinking_matrix_agrees_with_scipy(side):
    images = np.random.default_rng(side).random((20, side, side))
    half = shrinking(side)
    expected = shrink_by_scipy(images.reshape(20, -1), side)
    np.testing.assert_allclose((half @ images @ half.T).reshape(20, -1), expected, atol=1e-14)


@pytest.mark.parametrize("side", [6, 28])
def test_shrinking_agrees_with_scipy(side):
    rows = np.random.default_rng(side).integers(0, 2, (5000, side * side), dtype=np.uint8)
    means = shrink_by_scipy(rows, side)
    clear = np.abs(means - 0.5) > 1e-9
    small = shrink(rows, side)
    np.testing.assert_array_equal(small[clear], means[clear] > 0.5)
    assert not small[~clear].any()
    assert clear.mean() > 0.9


def test_gray_shrinking_agrees_with_scipy():
    rows = np.random.default_rng(0).integers(0, 256, (200, 36), dtype=np.uint8)
    rows[0], rows[1] = 0, 255
    small, means = shrink_gray(rows, 6), shrink_by_scipy(rows, 6)
    assert small.dtype == np.uint8
    assert np.abs(small - means).max() <= 0.5 + 1e-9
    assert (small[0] == 0).all()
    assert (small[1] == 255).all()


def test_shrinking_ties_are_dark():
    edge = np.zeros((6, 6), np.uint8)
    edge[:, :3] = 1  # through the middle of the second block: its mean is exactly one half
    assert shrink(edge.reshape(1, -1), 6).reshape(3, 3).tolist() == [[1, 0, 0]] * 3


def test_entropy_of_a_distribution():
    patterns = np.array([[0], [1]], np.uint8)
    assert PatternDistribution(patterns, np.array([0.5, 0.5])).entropy == pytest.approx(np.log(2))
    assert PatternDistribution(patterns, np.array([1.0, 0.0])).entropy == 0


def test_three_by_three_follows_its_distribution():
    data = load("3by3")
    assert data.distribution.probabilities.sum() == pytest.approx(1, abs=1e-15)
    assert data.distribution.entropy == pytest.approx(2.42827, abs=5e-6)
    assert np.log(512) - data.distribution.entropy == pytest.approx(3.81005, abs=5e-6)
    everything = np.concatenate([data.train, data.valid])
    for pattern, probability in zip(data.distribution.patterns, data.distribution.probabilities, strict=True):
        assert (everything == pattern).all(axis=1).sum() == round(18_000 * probability)
    np.testing.assert_array_equal(data.test, data.valid)


def test_three_by_three_columns_are_twice_as_probable():
    distribution = load("3by3").distribution
    images = distribution.patterns.reshape(-1, 3, 3)
    columns = (images == images[:, :1]).all(axis=(1, 2))
    assert columns.sum() == 6
    np.testing.assert_allclose(distribution.probabilities, np.where(columns, 2 / 18, 1 / 18))


def test_digits_come_rounded_or_gray():
    from sklearn.datasets import load_digits

    source = load_digits()
    rounded, gray = load("digits"), load("digits", binarize="resample")
    assert (rounded.levels, rounded.resample) == (1, False)
    assert (gray.levels, gray.resample, gray.train.max()) == (16, True, 16)
    np.testing.assert_array_equal(rounded.valid, gray.valid > 8)
    seen = np.concatenate([gray.train, gray.valid, gray.test])
    labels = np.concatenate([gray.labels[name] for name in ("train", "valid", "test")])
    known = {tuple(row): label for row, label in zip(source.data, source.target, strict=True)}
    assert all(known[tuple(row)] == label for row, label in zip(seen, labels, strict=True))
    assert sorted(map(tuple, seen)) == sorted(map(tuple, source.data))


def test_gray_and_binary_sets_may_be_real():
    gray, real = load("digits", binarize="gray"), load("digits", binarize="real")
    assert (real.levels, real.resample, real.valid.dtype) == (1, False, np.float32)
    np.testing.assert_array_equal(real.valid, gray.valid / np.float32(16))
    np.testing.assert_array_equal(load("3by3", binarize="real").test, load("3by3").test)


def check_sound(data: Dataset, name: str):
    entry = CATALOGUE[name]
    splits = (data.train, data.valid, data.test)
    assert tuple(map(len, splits)) == entry.rows
    assert all(rows.dtype == np.uint8 and rows.shape[1] == entry.visible for rows in splits)
    assert max(rows.max() for rows in splits) <= data.levels
    assert data.resample == (data.levels > 1)
    assert data.image_shape == entry.image_shape
    assert json.loads(json.dumps(data.split)) == data.split
    for split, rows in zip(("train", "valid", "test"), splits, strict=True):
        assert data.labels is None or data.labels[split].shape == (len(rows),)


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_sets_need_no_file(name, empty_folders):
    check_sound(load(name), name)
    assert load(name).split == load(name).split != load(name, split_seed=1).split


@pytest.mark.parametrize("name", FILED)
def test_filed_sets_are_sound(name, real_data):
    check_sound(load(name), name)


def test_binarized_mnist_is_the_published_one(real_data):
    data = load("binarized-mnist", split_seed=5)
    assert data.split["kind"] == "published"
    assert [round(float(rows.mean()), 4) for rows in (data.train, data.valid, data.test)] == [
        0.1306,
        0.1311,
        0.1325,
    ]


def test_mini_mnist_agrees_with_scipy(real_data):
    large, small = load("binarized-mnist"), load("mini-mnist")
    np.testing.assert_array_equal(small.valid, shrink_by_scipy(large.valid, 28) > 0.5 + 1e-9)


@pytest.mark.slow
def test_mini_mnist_in_gray_is_resampled_gray_mnist(real_data):
    large, small = load("mnist", split_seed=3), load("mini-mnist", binarize="resample", split_seed=3)
    means = shrink_by_scipy(large.valid, 28)
    assert (small.levels, small.resample, small.visible, small.image_shape) == (255, True, 196, (14, 14))
    assert np.abs(small.valid - means).max() <= 0.5 + 1e-9
    assert ((small.valid > 0) & (small.valid < 255)).mean() > 0.1
    np.testing.assert_array_equal(small.labels["valid"], large.labels["valid"])
    gray = load("mini-mnist", binarize="gray", split_seed=3)
    assert (gray.levels, gray.resample) == (255, False)
    np.testing.assert_array_equal(gray.test, small.test)


def test_mini_mnist_is_rounded_by_default(real_data):
    usual, rounded = load("mini-mnist"), load("mini-mnist", binarize="round")
    assert usual.split == rounded.split
    assert (usual.levels, usual.resample) == (1, False)
    assert usual.split["checksums"]["test"] == (
        "1b4fae1a738b3e72636389d7b6990070553d3580219297a52348b5908dc4f1a0"
    )


def test_binary_sets_cannot_be_resampled():
    with pytest.raises(InputError, match="expected gray values in 3by3 to resample, its values are binary"):
        load("3by3", binarize="resample")
    assert load("3by3", binarize="gray").split == load("3by3", binarize="round").split == load("3by3").split


def test_mnist_valid_is_drawn_from_train(real_data):
    one, other = load("mnist"), load("mnist", split_seed=1)
    counts = np.bincount(one.labels["train"]) + np.bincount(one.labels["valid"])
    assert counts.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert one.split["checksums"]["test"] == other.split["checksums"]["test"]
    assert one.split["checksums"]["valid"] != other.split["checksums"]["valid"]
    assert one.split["how"] == "valid drawn from train"
    assert load("mnist", binarize="round").levels == 1


def test_faces_are_split_in_their_groups(real_data):
    data = load("olivetti-faces")
    for name, count in {"train": 7, "valid": 1, "test": 2}.items():
        np.testing.assert_array_equal(np.bincount(data.labels[name]), [count] * 40)


def test_incomplete_sets_say_what_was_drawn(real_data):
    assert load("connect4-partial").split["how"] == "test drawn from valid"
    assert load("omniglot28").split["how"] == "valid drawn from train"


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    from natgrad.data.sources import _embedded_digits

    for got, expected in zip(_embedded_digits(), load_digits(return_X_y=True), strict=True):
        np.testing.assert_array_equal(got, expected)
