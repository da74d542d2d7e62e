"""What a user's values mean, and their code: bytes in {0,1}, gray bytes, or real numbers.

Values are means in [0, 1], bytes 0..255 (uint8 only, so that counts are not mistaken for gray), or exactly
{-1, +1}; or, if they are to be real, any finite numbers, kept as they are. All arrays of a file are looked
at before any is coded, since they share one code; both are done block by block, so that no more is in memory
than the values that are kept.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from natgrad.data.in_file import RowsInFile, SplitRows, Told
from natgrad.data.unread import Unread
from natgrad.errors import InputError

GRAY = 255


class Seen(NamedTuple):
    """The lowest and the highest value, and whether all are in {0,1} or in {-1,+1}."""

    low: float = np.inf
    high: float = -np.inf
    binary: bool = True
    signed: bool = True

    def also(self, block: np.ndarray) -> "Seen":
        """With the values of a block."""
        return Seen(
            min(self.low, block.min()),
            max(self.high, block.max()),
            self.binary and bool(((block == 0) | (block == 1)).all()),
            self.signed and bool(((block == -1) | (block == 1)).all()),
        )


def encode(
    rows: Mapping[str, Unread], path: Path, *, rounding: bool = False, told: Told | None = None
) -> tuple[dict[str, SplitRows], int]:
    """All splits in one code: bytes in {0,1} with levels 1, or gray bytes with levels 255, unless rounded."""
    seen = look_at_all(rows, told)
    code, levels = choose(seen, all(array.dtype == np.uint8 for array in rows.values()), path)
    if rounding and levels > 1:
        above = lambda block: code(block) > GRAY // 2  # noqa: E731
        return {name: coded(array, above, told=told) for name, array in rows.items()}, 1
    return {name: coded(array, code, told=told) for name, array in rows.items()}, levels


def as_real(rows: Mapping[str, Unread], path: Path, *, told: Told | None = None) -> dict[str, SplitRows]:
    """All splits as float32, as they are; gray bytes become means in [0, 1], as everywhere."""
    seen = look_at_all(rows, told)
    if max(-seen.low, seen.high) > float(np.finfo(np.float32).max):
        raise InputError(
            f"expected numbers that float32 can hold in {path}, got {seen.low:.9g} to {seen.high:.9g}; "
            "rescale them"
        )
    gray = all(array.dtype == np.uint8 for array in rows.values()) and not seen.binary
    scale = np.float32(GRAY if gray else 1)
    return {
        name: coded(array, lambda block: block.astype(np.float32) / scale, np.float32, told=told)
        for name, array in rows.items()
    }


def look_at_all(rows: Mapping[str, Unread], told: Told | None) -> Seen:
    """What the values of all arrays are; with `told`, one host looks."""

    def seen() -> list[Any]:
        found = Seen()
        for array in rows.values():
            found = look(array, found)
        return [float(found.low), float(found.high), found.binary, found.signed]

    return Seen(*(told(seen) if told else seen()))


def look(array: Unread, seen: Seen) -> Seen:
    """What has been seen, with an array's values; those that are not finite are a mistake."""
    for block in array.blocks():
        if block.dtype.kind == "f" and not np.isfinite(block).all():
            raise InputError(
                f"expected finite numbers in {array.what}, got NaN or infinity; remove or replace them"
            )
        seen = seen.also(block)
    return seen


def choose(seen: Seen, are_bytes: bool, path: Path) -> tuple[Callable[[np.ndarray], np.ndarray], int]:
    """The code of values such as these, and its levels."""
    if seen.signed and seen.low == -1:
        return lambda block: block > 0, 1
    if seen.binary:
        return lambda block: block, 1
    if are_bytes:
        return lambda block: block, GRAY
    if seen.low < 0 or seen.high > 1:
        raise InputError(
            f"expected values in [0, 1], bytes 0..255 as uint8, or exactly -1 and +1 in {path}, "
            f"got {seen.low:.9g} to {seen.high:.9g}; rescale them, or use data.binarize real for a network"
        )
    return to_bytes, GRAY


def coded(
    array: Unread, code: Callable[[np.ndarray], np.ndarray], dtype: type = np.uint8, told: Told | None = None
) -> SplitRows:
    """An array's rows as bytes, or numbers of another type, [row, visible]; with `told`, left in the file."""
    if told and array.mapped:
        return RowsInFile(array.mapped(), np.arange(array.shape[0]), code, np.dtype(dtype), told)
    width = int(np.prod(array.shape[1:]))
    return array.filled((array.shape[0], width), dtype, lambda block: code(block.reshape(len(block), width)))


def to_bytes(means: np.ndarray) -> np.ndarray:
    """The nearest of 256 levels, halves down, so that rounding later still asks for more than 1/2."""
    return np.ceil(means.astype(np.float64) * GRAY - 0.5).astype(np.uint8)
