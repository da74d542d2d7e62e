"""A .csv file as an unread array: numbers separated by commas, below a line of names or not."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np

from natgrad.data.unread import PIECE, Unread
from natgrad.errors import InputError

OVERHEAD = 64  # bytes that a line takes beside its characters


def open_csv(path: Path) -> Unread:
    """The numbers of a .csv file."""
    with _explained(path):
        first = next(_lines(path), "0")
        names = not is_numeric(first)
        rows = sum(1 for _ in _lines(path)) - names
        columns = first.count(",") + 1 if rows > 0 else 0

    def blocks() -> Iterator[np.ndarray]:
        with _explained(path):
            for lines in _portions(islice(_lines(path), int(names), None)):
                block = np.loadtxt(lines, delimiter=",", ndmin=2, comments=None)
                if block.shape[1] != columns:
                    raise ValueError(f"the number of columns changed from {columns} to {block.shape[1]}")
                yield block

    return Unread(f"'rows' of {path}", (max(rows, 0), columns), np.dtype(float), blocks)


def is_numeric(line: str) -> bool:
    """Whether every cell of the line is a number."""
    try:
        [float(cell) for cell in line.split(",")]
    except ValueError:
        return False
    return True


def _lines(path: Path) -> Iterator[str]:
    """The lines that are not blank."""
    with path.open(encoding="utf-8-sig") as stream:
        while line := stream.readline(PIECE + 1):
            if len(line) > PIECE:
                raise ValueError(f"a line of more than {PIECE} characters")
            if line.strip():
                yield line


def _portions(lines: Iterator[str]) -> Iterator[list[str]]:
    """Lines in lists of about a piece each."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line) + OVERHEAD
        if size >= PIECE:
            yield held
            held, size = [], 0
    if held:
        yield held


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"expected a readable file, {path} is not ({error.strerror}); check its permissions"
        ) from error
    except InputError:
        raise
    except ValueError as error:
        reason = str(error).split("; use")[0].rstrip(".")
        raise InputError(
            f"expected numbers separated by commas in {path}, got others ({reason}); correct the file"
        ) from error
