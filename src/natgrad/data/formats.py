"""File formats: bytes on disk to numpy arrays, or one sentence about what is wrong with them.

No declared size is believed before it has been compared with the bytes that are really there, and
nothing is ever unpickled. Formats: IDX (MNIST), .npy, .npz (a zip of .npy), and MATLAB's .mat of version 5.
"""

import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from natgrad.data.unread import AGAIN, check_size, open_npy, open_npz
from natgrad.errors import InputError

MATLAB_5 = (b"\x00\x01IM", b"\x01\x00MI")  # version and byte order, where the header of 128 bytes ends
UNSIGNED_BYTE = 8  # the IDX code of the only element type MNIST uses


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
    return array_from_bytes(raw[start:], np.dtype(np.uint8), shape, str(path))


def inflate(path: Path) -> bytes:
    """The contents of a gzip file."""
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise InputError(f"expected a gzip file, {path} cannot be unpacked ({error}); {AGAIN}") from error


def array_from_bytes(raw: bytes, dtype: np.dtype, shape: tuple[int, ...], what: str) -> np.ndarray:
    """The array of this shape, if the bytes are exactly as many as it needs and more than none."""
    check_size(shape, dtype, len(raw), what)
    return np.frombuffer(raw, dtype).reshape(shape)


def read_npy(path: Path) -> np.ndarray:
    """The array of a .npy file."""
    return open_npy(path).whole()


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a .npz file by name, whatever they unpack to: for files whose checksum is known."""
    return {name: array.whole() for name, array in open_npz(path).items()}


def read_mat(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Those of the named arrays that a MATLAB file of version 5 (saved with -v6 or -v7) has."""
    with path.open("rb") as stream:
        header = stream.read(128)
    if header[124:] not in MATLAB_5:
        raise InputError(
            f"expected a MATLAB file of version 5, {path} is another file; save it in MATLAB with -v7"
        )
    from scipy.io import loadmat

    try:
        arrays = loadmat(path, variable_names=list(names))
    except Exception as error:  # scipy's parser of a damaged file fails in many ways
        raise InputError(
            f"expected a MATLAB file, {path} cannot be read ({type(error).__name__}); {AGAIN}"
        ) from error
    return {name: np.asarray(arrays[name]) for name in names if name in arrays}


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
