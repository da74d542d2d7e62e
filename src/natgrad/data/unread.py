"""Arrays that have not been read: their shape and type, and their rows block by block, as often as asked.

A file may be larger than memory, and a small one may unpack to anything. So headers and an archive's
directory are read in bounded pieces, every declared size is compared with the bytes that are there, and
nothing larger than a block is held, but for an array in column order, which has no rows before it is whole.
"""

import io
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from natgrad.errors import InputError

PIECE = (
    1 << 20
)  # bytes that are read at a time: of an array, and of an archive's directory, which has hundreds
HEADER = 1 << 14  # bytes of an array's header: ours have a hundred
MEMBERS = 100  # arrays of an archive
_LOCAL = 30  # bytes before the name of an archive's member; their last four are the lengths of what follows
AGAIN = "get the file again"

Opening = Callable[[], AbstractContextManager[BinaryIO]]


class Unread(NamedTuple):
    """An array of a file. `held` is how many bytes are held while its blocks are read, beside a block.

    `mapped` is the array in the file, of which only what is looked at is read; none where it is compressed
    or has to be parsed.
    """

    what: str
    shape: tuple[int, ...]
    dtype: np.dtype
    blocks: Callable[[], Iterator[np.ndarray]]
    held: int = 0
    mapped: Callable[[], np.ndarray] | None = None

    @property
    def size(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)

    def whole(self) -> np.ndarray:
        """The array, read."""
        return self.filled(self.shape, self.dtype, lambda block: block)

    def filled(
        self, shape: tuple[int, ...], dtype: Any, change: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """An array of that shape and type made of the blocks, each of them changed."""
        found, at = np.empty(shape, dtype), 0
        for block in self.blocks():
            found.reshape(-1, *found.shape[1:])[at : at + len(block)] = change(block)
            at += len(block)
        return found


def open_npy(path: Path) -> Unread:
    """The array of a .npy file."""

    @contextmanager
    def opening() -> Iterator[BinaryIO]:
        try:
            with path.open("rb") as stream:
                yield stream
        except OSError as error:
            raise InputError(
                f"expected a readable file, {path} is not ({error.strerror}); check its permissions"
            ) from error

    with opening():
        size = path.stat().st_size
    return _array(opening, size, str(path), (path, 0))


def open_npz(path: Path) -> dict[str, Unread]:
    """The arrays of a .npz file by name."""
    with _archive(path) as archive:
        _check_members(archive, path)
        sizes = {member.filename: member.file_size for member in archive.infolist()}
        begins = {member.filename: _begin(path, member) for member in archive.infolist()}

    def opening(name: str) -> Opening:
        @contextmanager
        def member() -> Iterator[BinaryIO]:
            with _archive(path) as archive, archive.open(name) as stream:
                yield stream  # type: ignore[misc]

        return member

    named = {name: name.removesuffix(".npy") for name in sizes}
    return {
        short: _array(opening(name), sizes[name], f"{short!r} of {path}", begins[name])
        for name, short in named.items()
    }


def _begin(path: Path, member: zipfile.ZipInfo) -> tuple[Path, int] | None:
    """Where a member that is not compressed begins in its archive: after its name, which is there again."""
    if member.compress_type != zipfile.ZIP_STORED:
        return None
    with path.open("rb") as stream:
        stream.seek(member.header_offset)
        before = stream.read(_LOCAL)
    return path, member.header_offset + _LOCAL + sum(np.frombuffer(before[26:30], "<u2").tolist())


class _InPieces(io.BufferedReader):
    """A file whose pieces are small: an archive's directory is read at once, as long as it says it is."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > PIECE:
            raise zipfile.BadZipFile(f"its directory of {size} bytes is too long")
        return super().read(size)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive opened; whatever is wrong with it in one sentence."""
    try:
        with _InPieces(io.FileIO(path)) as stream, zipfile.ZipFile(stream) as archive:
            yield archive
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


def _check_members(archive: zipfile.ZipFile, path: Path) -> None:
    members = archive.infolist()
    if len(members) > MEMBERS:
        raise InputError(
            f"expected at most {MEMBERS} arrays in {path}, got {len(members)}; save those that are needed"
        )
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise InputError(
            f"expected an .npz as numpy writes it, {path} is compressed in another way; save it again"
        )


def _array(opening: Opening, size: int, what: str, begin: tuple[Path, int] | None) -> Unread:
    """The array in so many bytes of a .npy file, which begins there in a file that is not compressed."""
    with opening() as stream:
        start, shape, by_column, dtype = _header(stream, what)
    bytes_ = check_size(shape, dtype, size - start, what)
    by_column = by_column and len(shape) > 1

    def blocks() -> Iterator[np.ndarray]:
        with opening() as stream:
            _exactly(stream, start, what)
            if by_column:
                whole = np.frombuffer(_exactly(stream, bytes_, what), dtype).reshape(shape[::-1]).T
                yield from (whole[at : at + step] for at in range(0, rows, step))
                return
            for at in range(0, rows, step):
                count = min(step, rows - at)
                raw = _exactly(stream, count * (bytes_ // rows), what)
                yield np.frombuffer(raw, dtype).reshape(count, *shape[1:])

    rows = shape[0] if shape else 1
    step = max(1, PIECE * rows // bytes_)
    mapped = begin and partial(
        np.memmap, begin[0], dtype, "r", begin[1] + start, shape, "F" if by_column else "C"
    )
    return Unread(what, shape, dtype, blocks, bytes_ if by_column else 0, mapped)


def _header(stream: BinaryIO, what: str) -> tuple[int, tuple[int, ...], bool, np.dtype]:
    """Where an array begins, its shape, whether it is stored by columns, its type."""
    try:
        begin = stream.read(8)
        begin += stream.read(2 if begin[6:7] == b"\x01" else 4)
        length = int.from_bytes(begin[8:], "little")
        if length > HEADER:
            raise ValueError("too long")
        whole = io.BytesIO(begin + stream.read(length))
        parse = (
            np.lib.format.read_array_header_1_0
            if np.lib.format.read_magic(whole) == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, by_column, dtype = parse(whole)
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error):  # of the archive, not of the array
        raise
    except Exception as error:  # numpy's parser of a damaged header fails in many ways
        raise InputError(f"expected a numpy array, {what} has a damaged header; save it again") from error
    if dtype.kind in "OV":
        raise InputError(
            f"expected numbers, {what} holds Python objects or records; save an array of numbers"
        )
    return len(begin) + length, shape, by_column, dtype


def check_size(shape: tuple[int, ...], dtype: np.dtype, there: int, what: str) -> int:
    """The bytes of an array, if exactly so many are there and more than none."""
    if any(type(length) is not int for length in shape):  # NumPy's own check takes True for 1
        raise InputError(f"expected a shape of whole numbers in {what}, got {shape}; {AGAIN}")
    declared = math.prod(shape) * dtype.itemsize
    if declared != there or any(length < 0 for length in shape):
        raise InputError(
            f"expected {declared} bytes for the shape {shape} declared in {what}, got {there}; {AGAIN}"
        )
    if not there:
        raise InputError(f"expected data in {what}, its shape {shape} holds none; give a file with rows")
    return there


def _exactly(stream: BinaryIO, count: int, what: str) -> bytearray:
    """So many bytes, in pieces."""
    raw, at = bytearray(count), 0
    while at < count:
        piece = stream.read(min(PIECE, count - at))
        if not piece:
            raise InputError(f"expected {count - at} more bytes in {what}, it ends before them; {AGAIN}")
        raw[at : at + len(piece)] = piece
        at += len(piece)
    return raw
