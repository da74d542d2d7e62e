"""Training rows that stay in their file until somebody asks for some of them.

Each of several hosts needs only its own rows. What must be known of all rows (their checksum, their means)
one host finds out, a block at a time, and tells the others: `told` calls a function there, and returns what
it found, everywhere.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from natgrad.data.unread import PIECE

Told = Callable[[Callable[[], Any]], Any]


@dataclass(frozen=True, eq=False)
class RowsInFile:
    """Rows [row, visible] of a mapped array: those at `places` of it, in that order, in a code.

    An index gives fewer rows, still unread; `numpy.asarray` reads them, and nothing else of the file.
    """

    stored: np.ndarray
    places: np.ndarray
    code: Callable[[np.ndarray], np.ndarray]
    dtype: np.dtype
    told: Told

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, and that of their values."""
        return len(self.places), int(np.prod(self.stored.shape[1:]))

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> "RowsInFile":
        return replace(self, places=self.places[index])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy
        read = np.asarray(self.stored[self.places]).reshape(self.shape)
        return self.code(read).astype(dtype or self.dtype)

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows, a few at a time."""
        step = max(1, PIECE // max(1, self.shape[1] * self.stored.itemsize))
        return (np.asarray(self[at : at + step]) for at in range(0, len(self), step))

    @cached_property
    def checksum(self) -> str:
        """The sha256 of the rows' bytes."""
        found: str = self.told(self._digest)
        return found

    def _digest(self) -> str:
        found = hashlib.sha256()
        for block in self.blocks():
            found.update(block.data)
        return found.hexdigest()

    def average(self, of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """The mean over the rows of a function of rows."""
        total = lambda: sum(of(block).sum(axis=0, dtype=float) for block in self.blocks()).tolist()  # noqa: E731
        return np.array(self.told(total)) / len(self)


SplitRows = np.ndarray | RowsInFile
