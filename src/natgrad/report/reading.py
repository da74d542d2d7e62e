"""A run as its reader finds it: read from the folder alone, without JAX, whatever state it is in.

Nothing read here is trusted: rows keep finite numbers only, and what cannot be read is absent.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from natgrad.config import Config
from natgrad.records import folder as folders
from natgrad.records.folder import locked
from natgrad.report import columns
from natgrad.writing import read_regular

_Row = dict[str, int | float | None]
FINISHED, UNFINISHED, RUNNING, DIVERGED = "finished", "unfinished", "running", "diverged"
DAMAGED, NEWER = "damaged", "newer"  # of folders that cannot be read
_LONGEST = 1 << 20  # bytes of a small file, which has thousands


@dataclass(frozen=True)
class Record:
    """What a run folder says of itself. `rows` are the trace's; `notes` those of the newest state."""

    folder: Path
    name: str
    config: Config
    rows: list[_Row] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """How far the run is: finished, running (a process holds its lock), diverged, or unfinished."""
        if locked(self.folder):
            return RUNNING
        if self._complete():
            return FINISHED
        progress = self.notes.get("progress")
        given_up = isinstance(progress, dict) and progress.get("diverged") is True
        return DIVERGED if given_up else UNFINISHED

    @property
    def last(self) -> _Row:
        """The last row, or an empty one."""
        return self.rows[-1] if self.rows else {}

    @property
    def best(self) -> _Row:
        """The row that is best on validation data, by what its kind is compared by, or an empty one."""
        by = (columns.criterion(self.config.model.kind), columns.Column(columns.LOSS, columns.LOSS))
        return dict(next(filter(None, (columns.best(self.rows, column) for column in by)), {}))

    @property
    def used(self) -> _Row:
        """The row of the model that is used: the best, or the last of a run that kept no other."""
        return (self.best if self.notes.get("best") else {}) or self.last

    def _complete(self) -> bool:
        """Whether every epoch was done, or early stopping ended the run."""
        if (self.last.get("epoch") or 0) >= self.config.training.epochs and self.rows:
            return True
        stale = len(self.rows) - 1 - self.rows.index(self.best) if self.best else 0
        return 0 < self.config.evaluation.patience <= stale


def read_run(run: str | Path, name: str | None = None) -> Record:
    """Read a run; an InputError where it has no sound config or a damaged trace."""
    place, settings = folders.open_run(run)
    rows = [row for row in map(_numbers, folders.trace(place)) if row.get("epoch") is not None]
    environment = _object(place / "environment.json")
    return Record(place, name or _name(place, 1), settings, rows, environment, _notes(place / "state"))


def _notes(states: Path) -> dict[str, Any]:
    """The notes of the newest state that has some."""
    found = (_object(path).get("notes") for path in sorted(states.glob("*.json"), reverse=True))
    return next((notes for notes in found if isinstance(notes, dict)), {})


def read_all(runs: Sequence[str | Path]) -> list[Record]:
    """Read several runs, each once, under the shortest names that tell them apart."""
    places = list(dict.fromkeys(Path(run).resolve() for run in runs))
    given = {Path(run).resolve(): run for run in runs}
    return [read_run(given[place], name) for place, name in zip(places, _distinct_names(places), strict=True)]


def _distinct_names(places: Sequence[Path]) -> list[str]:
    """The last parts of paths, as many as it takes to tell them apart.

    >>> _distinct_names([Path("/runs/a/seed-1"), Path("/runs/b/seed-1"), Path("/runs/c")])
    ['a/seed-1', 'b/seed-1', 'c']
    """
    lengths = [1] * len(places)
    while True:
        found = [_name(place, length) for place, length in zip(places, lengths, strict=True)]
        longer = [
            min(length + (found.count(name) > 1), len(place.parts))
            for name, length, place in zip(found, lengths, places, strict=True)
        ]
        if longer == lengths:
            return found
        lengths = longer


def _name(place: Path, length: int) -> str:
    return "/".join(place.resolve().parts[-length:])


def _numbers(row: Any) -> _Row:
    """The numbers of a row of the trace and its empty places; all else is absent."""
    if not isinstance(row, dict):
        return {}
    return {str(key): value for key, value in row.items() if value is None or _number(value)}


def _number(value: Any) -> bool:
    """Whether a value is a finite number; no run has larger ones, and the page's script has none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_regular(path, _LONGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
