"""Formats: hand-made files are read back, damaged ones give one sentence and never anything else."""

import contextlib
import gzip
import io
import os
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from natgrad.data import formats, unread
from natgrad.errors import InputError


def idx_bytes(array, magic=b"\0\0\x08", shape=None):
    shape = array.shape if shape is None else shape
    return magic + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + array.tobytes()


def write(path, raw, mtime=0):
    path.write_bytes(gzip.compress(raw, mtime=mtime))
    return path


def npy_bytes(array, **options):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, **options)
    return stream.getvalue()


IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("array", [IMAGES, IMAGES[0], IMAGES[0, 0]], ids=["3d", "2d", "1d"])
def test_idx_is_read_back(tmp_path, array):
    read = formats.read_idx(write(tmp_path / "a.gz", idx_bytes(array)))
    np.testing.assert_array_equal(read, array)
    assert read.dtype == np.uint8


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (b"", "expected an IDX file of bytes"),
        (b"\0\0", "expected an IDX file of bytes"),
        (idx_bytes(IMAGES, magic=b"\0\1\x08"), "begins '00 01 08 03'; get the file again"),
        (idx_bytes(IMAGES, magic=b"\0\0\x0d"), "expected an IDX file of bytes"),
        (b"\0\0\x08\xff" + bytes(2000), "expected an IDX file of bytes"),
        (idx_bytes(IMAGES)[:10], "expected an IDX header of 16 bytes, .* ends after 10"),
        (idx_bytes(IMAGES)[:-1], r"expected 24 bytes for the shape \(2, 3, 4\) .* got 23"),
        (idx_bytes(IMAGES) + b"x", "expected 24 bytes .* got 25"),
        (idx_bytes(IMAGES, shape=(2**32 - 1,) * 3), "expected 79228162458924105385300197375 bytes"),
        (idx_bytes(IMAGES[:0]), "expected data in .* holds none"),
    ],
)
def test_damaged_idx(tmp_path, raw, match):
    with pytest.raises(InputError, match=match):
        formats.read_idx(write(tmp_path / "a.gz", raw))


def test_damaged_gzip(tmp_path):
    whole = gzip.compress(idx_bytes(IMAGES), mtime=0)
    damaged = [idx_bytes(IMAGES), whole[:-9], whole[:5], whole[:-6] + b"\0" + whole[-5:], whole + b"tail"]
    for raw in damaged:
        (tmp_path / "a.gz").write_bytes(raw)
        with pytest.raises(InputError, match=r"expected a gzip file, .* cannot be unpacked"):
            formats.read_idx(tmp_path / "a.gz")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
@pytest.mark.parametrize("piece", [1 << 20, 5], ids=["at once", "in pieces"])
def test_npy_is_read_back(tmp_path, monkeypatch, order, version, piece):
    monkeypatch.setattr(unread, "PIECE", piece)
    array = np.asarray(np.linspace(0, 1, 12).reshape(4, 3), order=order)
    (tmp_path / "a.npy").write_bytes(npy_bytes(array, version=version))
    np.testing.assert_array_equal(formats.read_npy(tmp_path / "a.npy"), array)


@pytest.mark.parametrize(
    "array", [np.array(3.0), np.arange(3), np.zeros((2, 2, 2, 2))], ids=["0d", "1d", "4d"]
)
def test_npy_of_any_dimension(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(formats.read_npy(tmp_path / "a.npy"), array)


def test_damaged_npy(tmp_path):
    whole = npy_bytes(np.zeros((2, 3)))
    negative = whole.replace(b"(2, 3), }  ", b"(-2, -3), }")
    cases = {
        b"not numpy": "expected a numpy array, .* has a damaged header; save it again",
        whole[:40]: "damaged header",
        whole.replace(b"<f8", b"<q8"): "damaged header",
        whole[:-1]: r"expected 48 bytes for the shape \(2, 3\)",
        whole + b"x": "expected 48 bytes .* got 49",
        negative: r"shape \(-2, -3\)",
        whole.replace(b"(2, 3), }     ", b"(True, 3), }  "): r"a shape of whole numbers .* \(True, 3\)",
        npy_bytes(np.array([{}], dtype=object)): "holds Python objects",
        npy_bytes(np.zeros(2, dtype=[("a", "f8")])): "objects or records; save an array of numbers",
    }
    for raw, match in cases.items():
        (tmp_path / "a.npy").write_bytes(raw)
        with pytest.raises(InputError, match=match):
            formats.read_npy(tmp_path / "a.npy")


def test_declared_size_is_not_allocated(tmp_path):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000, 784), }\n"
    raw = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64)
    (tmp_path / "a.npy").write_bytes(raw)
    with pytest.raises(InputError, match=r"expected 6272000000000000000 bytes .* got 64"):
        formats.read_npy(tmp_path / "a.npy")


def test_a_file_that_shrinks_while_it_is_read(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    array = unread.open_npy(tmp_path / "a.npy")
    os.truncate(tmp_path / "a.npy", 150)
    with pytest.raises(InputError, match=r"expected 26 more bytes in .*a.npy, it ends before them; get"):
        array.whole()


def test_archives_of_too_many_arrays_and_too_long_directories_are_said(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(101):
            archive.writestr(f"{number}.npy", b"")
    with pytest.raises(InputError, match=r"expected at most 100 arrays in .*, got 101; save those"):
        formats.read_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(40):
            archive.writestr(f"{number:030000d}.npy", b"")
    with pytest.raises(InputError, match=r"cannot be unpacked \(its directory of \d+ bytes is too long\)"):
        formats.read_npz(path)


def test_damaged_npz(tmp_path):
    np.savez_compressed(tmp_path / "whole.npz", a=np.arange(1000))
    whole = (tmp_path / "whole.npz").read_bytes()
    middle = len(whole) // 2
    for raw in (b"", b"PK", whole[:-30], whole[:middle] + b"????" + whole[middle + 4 :]):
        (tmp_path / "a.npz").write_bytes(raw)
        with pytest.raises(InputError, match=r"expected an \.npz file, .* cannot be unpacked"):
            formats.read_npz(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("readme.txt", "not an array")
    with pytest.raises(InputError, match=r"'readme.txt' of .* damaged header"):
        formats.read_npz(tmp_path / "other.npz")


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match="expected a readable file"):
        formats.read_npy(tmp_path)
    with pytest.raises(InputError, match="expected a gzip file"):
        formats.read_idx(tmp_path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.floats(0, 1),
    value=st.binary(max_size=3),
    cut=st.floats(0, 1),
    kind=st.sampled_from(["idx", "npy", "npz"]),
)
def test_any_damage_gives_an_array_or_an_input_error(tmp_path, place, value, cut, kind):
    stream = io.BytesIO()
    np.savez_compressed(stream, a=IMAGES)
    whole = {"idx": idx_bytes(IMAGES), "npy": npy_bytes(IMAGES), "npz": stream.getvalue()}[kind]
    start = int(place * len(whole))
    raw = (whole[:start] + value + whole[start + len(value) :])[: max(1, int(cut * 2 * len(whole)))]
    path = tmp_path / f"a.{kind}"
    path.write_bytes(gzip.compress(raw) if kind == "idx" else raw)
    read = {"idx": formats.read_idx, "npy": formats.read_npy, "npz": formats.read_npz}[kind]
    with contextlib.suppress(InputError):
        assert read(path) is not None


def test_packed_rows_are_unpacked(tmp_path):
    bits = np.random.default_rng(0).integers(0, 2, (5, 13), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", train=np.packbits(bits, axis=1), labels=np.arange(5))
    read = formats.read_packed(tmp_path / "a.npz", 13)
    np.testing.assert_array_equal(read["train"], bits)
    np.testing.assert_array_equal(read["labels"], np.arange(5))
    with pytest.raises(InputError, match=r"expected rows of 3 packed bytes in 'train' of .*, got 2 of uint8"):
        formats.read_packed(tmp_path / "a.npz", 17)
