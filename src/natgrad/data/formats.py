"""File formats: bytes on disk to numpy arrays, or one sentence about what is wrong with them.

No declared size is believed before it has been compared with the bytes that are really there, and
nothing is ever unpickled. Three formats: IDX (MNIST), .npy, and .npz (a zip of .npy).
"""

import gzip
import io
import math
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from natgrad.errors import InputError

UNSIGNED_BYTE = 8  # the IDX code of the only element type MNIST uses
AGAIN = "get the file again"
SMALL, RATIO = 32 << 20, 100  # an archive may unpack to so many bytes, or to so many times its own size


def read_idx(path: Path) -> NDArray[np.uint8]:
    """A gzip-compressed IDX file of unsigned bytes, of one to three dimensions."""
    raw = inflate(path)
    if len(raw) < 4 or raw[:3] != bytes([0, 0, UNSIGNED_BYTE]) or raw[3] not in (1, 2, 3):
        raise InputError(
            f"expected an IDX file of bytes (magic 00 00 08 nd), {path} begins {raw[:4].hex(' ')!r}; {AGAIN}"
        )
    start = 4 + 4 * raw[3]
    if len(raw) < start:
        raise InputError(f"expected an IDX header of {start} bytes, {path} ends after {len(raw)}; {AGAIN}")
    shape = struct.unpack(f">{raw[3]}I", raw[4:start])
    return fill(raw[start:], np.dtype(np.uint8), shape, str(path))


def inflate(path: Path) -> bytes:
    """The contents of a gzip file."""
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise InputError(f"expected a gzip file, {path} cannot be unpacked ({error}); {AGAIN}") from error


def fill(raw: bytes | memoryview, dtype: np.dtype, shape: tuple[int, ...], what: str) -> np.ndarray:
    """The array of this shape, if the bytes are exactly as many as it needs and more than none."""
    declared = math.prod(shape) * dtype.itemsize
    if declared != len(raw) or any(length < 0 for length in shape):
        raise InputError(
            f"expected {declared} bytes for the shape {shape} declared in {what}, got {len(raw)}; {AGAIN}"
        )
    if not raw:
        raise InputError(f"expected data in {what}, its shape {shape} holds none; give a file with rows")
    return np.frombuffer(raw, dtype).reshape(shape)


def read_npy(path: Path) -> np.ndarray:
    """The array of a .npy file."""
    try:
        return parse_npy(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(
            f"expected a readable file, {path} is not ({error.strerror}); check its permissions"
        ) from error


def parse_npy(raw: bytes, what: str) -> np.ndarray:
    """The array in the bytes of a .npy file; arrays of Python objects are refused."""
    stream = io.BytesIO(raw)
    try:
        version = np.lib.format.read_magic(stream)
        header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, by_column, dtype = header(stream)
    except Exception as error:  # numpy's parser of a damaged header fails in many ways
        raise InputError(f"expected a numpy array, {what} has a damaged header; save it again") from error
    if dtype.kind in "OV":
        raise InputError(
            f"expected numbers, {what} holds Python objects or records; save an array of numbers"
        )
    body = memoryview(raw)[stream.tell() :]
    return fill(body, dtype, shape[::-1], what).T if by_column else fill(body, dtype, shape, what)


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a .npz file by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            _refuse_bombs(archive, path)
            members = {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}
    except InputError:
        raise
    except (
        OSError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
        ValueError,
    ) as error:
        raise InputError(
            f"expected an .npz file, {path} cannot be unpacked ({error}); get or save it again"
        ) from error
    return {name: parse_npy(raw, f"{name!r} of {path}") for name, raw in members.items()}


def _refuse_bombs(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse what would unpack to far more than it is: only ordinary compression, and not a thousandfold."""
    members = archive.infolist()
    declared, real = sum(member.file_size for member in members), path.stat().st_size
    if declared > max(SMALL, RATIO * real):
        raise InputError(
            f"expected an .npz that unpacks to at most {RATIO} times its size, {path} of {real} bytes would "
            f"unpack to {declared}; save it with numpy.savez, which does not compress"
        )
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise InputError(
            f"expected an .npz as numpy writes it, {path} is compressed in another way; save it again"
        )


def read_packed(path: Path, visible: int) -> dict[str, np.ndarray]:
    """A .npz whose splits are bits packed along each row; other arrays come as they are."""
    arrays = read_npz(path)
    return {
        name: unpack(array, visible, f"{name!r} of {path}") if array.ndim == 2 else array
        for name, array in arrays.items()
    }


def unpack(packed: np.ndarray, visible: int, what: str) -> NDArray[np.uint8]:
    """Bits [row, visible] in {0,1} out of bytes [row, visible / 8]."""
    width = -(-visible // 8)
    if packed.dtype != np.uint8 or packed.shape[1] != width:
        raise InputError(
            f"expected rows of {width} packed bytes in {what}, "
            f"got {packed.shape[1]} of {packed.dtype}; {AGAIN}"
        )
    return np.unpackbits(packed, axis=1, count=visible)
