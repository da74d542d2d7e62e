"""A user's file: every way to give one, and the sentence for every mistake."""

import numpy as np
import pytest

from natgrad.data import load, splits, table, unread
from natgrad.errors import InputError

RANDOM = np.random.default_rng(0)
BITS = RANDOM.integers(0, 2, (40, 12))
GRAY = RANDOM.integers(0, 256, (40, 12), dtype=np.uint8)


def npy(folder, array):
    np.save(folder / "a.npy", array)
    return folder / "a.npy"


def npz(folder, **arrays):
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


def csv(folder, text):
    (folder / "a.csv").write_text(text, encoding="utf-8")
    return folder / "a.csv"


def together(data):
    return sorted(np.concatenate([data.train, data.valid, data.test]).tolist())


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float32, np.float64])
def test_binary_values_of_any_type(tmp_path, dtype):
    data = load(npy(tmp_path, BITS.astype(dtype)))
    assert (data.levels, data.resample, data.visible, data.image_shape) == (1, False, 12, None)
    assert (len(data.train), len(data.valid), len(data.test)) == (32, 4, 4)
    assert together(data) == sorted(BITS.tolist())
    assert data.split["kind"] == "seeded"
    assert data.split["sizes"] == [32, 4, 4]


def test_plus_and_minus_one(tmp_path):
    for dtype in (np.int8, np.float64):
        assert together(load(npy(tmp_path, (2 * BITS - 1).astype(dtype)))) == sorted(BITS.tolist())


def test_bytes_are_gray_and_may_be_rounded(tmp_path):
    data = load(npy(tmp_path, GRAY))
    assert (data.levels, data.resample) == (255, True)
    assert together(data) == sorted(GRAY.tolist())
    rounded = load(npy(tmp_path, GRAY), binarize="round")
    assert (rounded.levels, rounded.resample) == (1, False)
    assert together(rounded) == sorted((GRAY > 127.5).astype(int).tolist())


def test_means_are_stored_to_within_half_a_level(tmp_path):
    means = RANDOM.random((10, 3))
    data = load(npz(tmp_path, train=means, valid=means, test=means))
    assert np.abs(data.train / data.levels - means).max() <= 0.5 / 255 + 1e-12


def test_rounding_asks_for_more_than_one_half(tmp_path):
    means = np.array([[0, 0.4999, 0.5, 0.5001, 1]] * 3)
    assert load(npy(tmp_path, means), binarize="round").train.tolist() == [[0, 0, 0, 1, 1]]


def test_binary_values_cannot_be_resampled(tmp_path):
    path = npy(tmp_path, BITS)
    with pytest.raises(InputError, match=r"expected gray values in .*\.npy to resample, its values are"):
        load(path, binarize="resample")
    for harmless in (None, "round", "gray"):
        data = load(path, binarize=harmless)
        assert (data.levels, data.resample) == (1, False)


def test_real_values_are_kept_as_they_are(tmp_path):
    numbers = RANDOM.normal(0, 30, (40, 12))
    data = load(npy(tmp_path, numbers), binarize="real")
    assert (data.levels, data.resample, data.train.dtype) == (1, False, np.float32)
    assert together(data) == sorted(numbers.astype(np.float32).tolist())
    for kept in (2 * BITS - 1, BITS, BITS * 7, numbers.astype(np.float16), BITS.astype(np.uint8)):
        assert together(load(npy(tmp_path, kept), binarize="real")) == sorted(kept.tolist())
    table = load(csv(tmp_path, "-1.5,2\n3,1e9\n0,1\n"), binarize="real")
    assert together(table) == [[-1.5, 2], [0, 1], [3, 1e9]]
    assert data.split == load(npy(tmp_path, numbers), binarize="real").split


def test_real_values_of_gray_bytes_are_means(tmp_path):
    data = load(npz(tmp_path, train=GRAY, valid=GRAY, test=GRAY), binarize="real")
    assert data.train.dtype == np.float32
    np.testing.assert_allclose(data.train, GRAY / 255, rtol=1e-7)


def test_real_values_must_be_finite_and_fit(tmp_path):
    for array in (np.where(BITS, np.nan, 0.0), np.where(BITS, -np.inf, 0.0)):
        with pytest.raises(InputError, match="expected finite numbers in 'rows' of"):
            load(npy(tmp_path, array), binarize="real")
    with pytest.raises(InputError, match=r"expected numbers that float32 can hold in .*, got -1e\+300 to 0;"):
        load(npy(tmp_path, np.where(BITS, -1e300, 0.0)), binarize="real")


def test_real_values_of_a_large_compressed_file_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "b.npz", train=np.zeros((12_000, 784), np.uint8))
    with pytest.raises(InputError, match="is read in at most five times its size and 64 MB of memory"):
        load(tmp_path / "b.npz", binarize="real")
    load(tmp_path / "b.npz")


def test_the_code_is_one_for_all_splits(tmp_path):
    dark = np.ones((5, 12), np.uint8)
    data = load(npz(tmp_path, train=GRAY, valid=dark, test=dark))
    assert (data.levels, data.test.max()) == (255, 1)


def test_images_have_a_shape(tmp_path):
    assert load(npy(tmp_path, BITS.reshape(40, 3, 4))).image_shape == (3, 4)
    assert load(npy(tmp_path, BITS), image_shape=(2, 6)).image_shape == (2, 6)
    assert load(npy(tmp_path, BITS[:, :9])).image_shape is None
    for shape in ((3, 5), (-3, -4), (12,)):
        with pytest.raises(InputError, match="expected an image shape of 12 pixels, got"):
            load(npy(tmp_path, BITS), image_shape=shape)


def test_given_splits_are_kept(tmp_path):
    data = load(npz(tmp_path, train=BITS, valid=BITS[:5], test=BITS[:3], extra=np.zeros(2)))
    assert data.split["kind"] == "published"
    np.testing.assert_array_equal(data.train, BITS)
    np.testing.assert_array_equal(data.test, BITS[:3])


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"train": 40, "test": 6}, [36, 4, 6]),
        ({"train": 40, "valid": 6}, [40, 3, 3]),
        ({"train": 40}, [32, 4, 4]),
        ({"images": 40, "other": 2}, [32, 4, 4]),
        ({"anything": 40}, [32, 4, 4]),
    ],
)
def test_missing_splits_are_drawn_with_their_labels(tmp_path, given, sizes):
    rows = {name: np.arange(12) < np.arange(size)[:, None] % 13 for name, size in given.items()}
    labels = {
        f"{n}_labels" if "train" in given else "labels": np.arange(s) % 13
        for n, s in given.items()
        if n != "other"
    }
    data = load(npz(tmp_path, **rows, **labels))
    assert data.split["sizes"] == sizes
    for name in ("train", "valid", "test"):
        np.testing.assert_array_equal(np.minimum(data.labels[name], 12), getattr(data, name).sum(axis=1))


def test_split_depends_on_its_seed_alone(tmp_path):
    path = npy(tmp_path, GRAY)
    one, same, other = load(path), load(path, split_seed=0), load(path, split_seed=1)
    assert one.split == same.split
    assert one.split["checksums"]["train"] != other.split["checksums"]["train"]
    assert other.split["seed"] == 1
    assert together(one) == together(other)


@pytest.mark.parametrize("header", ["", "a,b,c\n", '"x 1",y,z\n', "\ufeff", "\n\n"])
def test_csv(tmp_path, header):
    data = load(csv(tmp_path, header + "0,1,0.0\n1,0,1e0\n\n1,1,0\n"))
    assert together(data) == [[0, 1, 0], [1, 0, 1], [1, 1, 0]]


def test_suffix_may_be_in_capitals(tmp_path):
    (tmp_path / "a.CSV").write_text("0\n1\n1\n")
    assert load(str(tmp_path / "a.CSV")).visible == 1


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.where(BITS, np.nan, 0.0), "expected finite numbers in 'rows' of .*, got NaN or infinity"),
        (np.where(BITS, np.inf, 0.0), "expected finite numbers"),
        (BITS * 1.5, r"expected values in \[0, 1\], bytes .*, got 0 to 1.5; rescale them"),
        (BITS * 7, "got 0 to 7; rescale"),
        (BITS * 1.0000001, "got 0 to 1.0000001; rescale"),
        (BITS - 0.5, "got -0.5 to 0.5"),
        (BITS - 1, "got -1 to 0"),
        (BITS[0], r"expected \[rows, visible\] or \[rows, height, width\] .* shape \(12,\)"),
        (BITS.reshape(2, 2, 10, 12), "reshape it"),
        (BITS.astype(str), "expected numbers in .*, got the type <U"),
        (BITS * 1j, "got the type complex128"),
        (BITS[:2], "expected at least 3 rows"),
        (BITS[:0], "holds none; give a file with rows"),
        (BITS[:, :0], "holds none"),
        (BITS.astype(object), "holds Python objects"),
    ],
)
def test_mistakes_in_an_array_are_said(tmp_path, array, match):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(InputError, match=match):
        load(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"a": BITS, "b": BITS}, "expected arrays named train, valid, test, or images, .* got a, b; rename"),
        ({}, "cannot be unpacked|got none; rename them"),
        (
            {"train": BITS, "test": BITS[:, :5]},
            r"expected splits of one width in .*, got \[\(5,\), \(12,\)\]",
        ),
        ({"train": BITS, "test": BITS.reshape(40, 3, 4)}, "expected splits of one width"),
        ({"train": BITS[:1], "test": BITS}, "expected more than 1 train rows"),
        ({"train": BITS, "valid": BITS[:1]}, "expected more than 1 valid rows"),
        ({"train": BITS, "train_labels": np.arange(3)}, "expected one label for each row"),
        ({"train": BITS, "test": BITS, "train_labels": np.arange(40)}, "expected one label for each row"),
        ({"x": BITS, "labels": np.zeros((40, 2))}, "expected one label for each row"),
    ],
)
def test_mistakes_in_an_archive_are_said(tmp_path, arrays, match):
    with pytest.raises(InputError, match=match):
        load(npz(tmp_path, **arrays))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "expected rows in .* give a set that is not empty"),
        ("a,b\n", "not empty"),
        (
            "0,1\n1,x\n",
            r"expected numbers separated by commas in .*, got others \(could not convert string 'x'",
        ),
        ("0,1\n1\n", "number of columns changed"),
        ("0;1\n1;0\n", "expected numbers separated by commas"),
        ("0,\n1,1\n", "expected numbers separated by commas|not empty|at least 3 rows"),
        ("0,nan\n1,1\n0,1\n", "expected finite numbers"),
        ("0,255\n1,1\n0,1\n", "got 0 to 255; rescale them"),
    ],
)
def test_mistakes_in_a_table_are_said(tmp_path, text, match):
    with pytest.raises(InputError, match=match) as caught:
        load(csv(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("piece", [40, 200])
def test_tables_are_read_in_portions(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(table, "PIECE", piece)
    text = "a,b\n" + "".join(f"{a},{b}\n" for a, b in BITS[:, :2])
    assert together(load(csv(tmp_path, text))) == sorted(BITS[:, :2].tolist())
    with pytest.raises(InputError, match=r"got others \(the number of columns changed from 2 to 1"):
        load(csv(tmp_path, text + "1\n"))
    with pytest.raises(InputError, match=rf"got others \(a line of more than {piece} characters\); correct"):
        load(csv(tmp_path, text + "1" * (piece + 1)))


def test_rows_that_are_too_wide_are_said(tmp_path):
    with pytest.raises(InputError, match=r"expected rows of at most 1048576 values in .*, got 1048577; make"):
        load(npy(tmp_path, np.zeros((3, (1 << 20) + 1), np.uint8)))


@pytest.mark.parametrize("order", ["C", "F"])
def test_wide_arrays_come_back_whole(tmp_path, monkeypatch, order):
    """Blocks of a row, moved a column at a time: the same rows with their labels."""
    monkeypatch.setattr(unread, "PIECE", 4096)
    monkeypatch.setattr(splits, "MOVED", 1)
    rows = np.asarray(RANDOM.random((40, 300)), order=order)
    data = load(npz(tmp_path, rows=rows, labels=np.arange(40)))
    whole = np.concatenate([data.train, data.valid, data.test])
    marks = np.concatenate([data.labels[name] for name in ("train", "valid", "test")])
    np.testing.assert_array_equal(whole, np.ceil(rows[marks] * 255 - 0.5))


def test_table_that_is_no_text(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="expected numbers separated by commas"):
        load(tmp_path / "a.csv")


def test_mistakes_in_the_path_are_said(tmp_path):
    with pytest.raises(
        InputError, match=r"expected a data file at .*none.npy, there is none; check the path"
    ):
        load(tmp_path / "none.npy")
    with pytest.raises(InputError, match=r"expected a file ending in .npy, .npz or .csv, got 'rows.txt'"):
        load("rows.txt")
    with pytest.raises(InputError, match="expected a file ending in"):
        load(tmp_path)
    with pytest.raises(
        InputError, match="unknown data set 'binarized_mnist'; did you mean 'binarized-mnist'"
    ):
        load("binarized_mnist")
    with pytest.raises(InputError, match="unknown binarization 'rond'; did you mean 'round'"):
        load("digits", binarize="rond")
