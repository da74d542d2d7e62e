"""The record of a sweep: a JSON line for every trial that ended, compact enough to be committed.

variant, settings, seed    what was trained: settings as the file gives them, by short or dotted name
seeded                     the settings that took the seed too, where there are any
rows, wall_seconds         the figures of its trace, and how long the training took
evaluated                  what the kind's evaluation said of the trained model, where one was asked for
warning                    what its user should know, such as that it hardly learned
error                      in place of rows: why it failed

A trial is known by those of its settings that its method reads and by its seed, whatever its variant is
called; the last line about it counts.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from natgrad.config import names
from natgrad.records import folder
from natgrad.sweep.plan import Candidate, SweepSection
from natgrad.sweep.shared import read_by, reader_for
from natgrad.sweep.values import by_dotted_name

_Line = dict[str, Any]
TraceRows = list[dict[str, Any]]

_KEPT = ("epoch", "step", "seconds", "cpu_seconds", "divergences", "damping", "kl")
_SPLITS = ("train_", "valid_", "test_")


class TrialRecord:
    """What is known of a sweep's trials; with a stream, what becomes known is appended to it."""

    def __init__(self, section: SweepSection, lines: Iterable[str], stream: IO[str] | None = None) -> None:
        self.seeded, self.stream = section.seeded, stream
        self.known: dict[str, _Line] = {}
        for text in lines:
            try:
                self.learn(json.loads(text))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # cut off by a kill, or of another kind

    def learn(self, line: _Line) -> None:
        """Know a line about a trial, without writing it anywhere."""
        self.known[identity(line["settings"], line["seed"], line.get("seeded", ()))] = line

    def line(self, candidate: Candidate, seed: int) -> _Line | None:
        """The last line about a trial."""
        return self.known.get(identity(candidate.setting, seed, self.seeded))

    def rows(self, candidate: Candidate, seed: int) -> TraceRows | None:
        """The figures of a trial, or None if it has not been trained to its end."""
        return (self.line(candidate, seed) or {}).get("rows")

    def add(self, candidate: Candidate, seed: int, ending: Mapping[str, Any]) -> None:
        """Write down how a trial ended: its rows and seconds, or its error."""
        line = {"variant": candidate.variant, "settings": candidate.setting, "seed": seed}
        line |= {"seeded": list(self.seeded)} if self.seeded else {}
        self.known[identity(candidate.setting, seed, self.seeded)] = line | dict(ending)
        if self.stream is not None:
            self.stream.write(folder.json_line(line | dict(ending)) + "\n")
            self.stream.flush()


def read_record(path: Path, section: SweepSection) -> TrialRecord:
    """The record in a file, which need not exist."""
    return TrialRecord(section, path.read_text("utf-8").splitlines() if path.exists() else ())


def record_in(stream: IO[str], section: SweepSection) -> TrialRecord:
    """The record in a file that is open for reading and appending."""
    stream.seek(0)
    text = stream.read()
    if text and not text.endswith("\n"):
        stream.write("\n")  # after a line cut off by a kill
    return TrialRecord(section, text.splitlines(), stream)


def identity(settings: Mapping[str, Any], seed: int, seeded: Sequence[str]) -> str:
    """What makes a trial the same as another; settings that its method does not read make no difference.

    >>> identity({"damping": 1}, 0, ()) == identity({"metric": {"damping": 1.0}}, 0, ())
    True
    >>> identity({"method": "rws", "damping": 1}, 0, ()) == identity({"method": "rws"}, 0, ())
    True
    """
    given = by_dotted_name(settings)
    unread = given.keys() - read_by(reader_for(given))
    idle = {name for name in unread if names.readers(name)}  # one unknown today made a difference once
    kept = {name: _plain(value) for name, value in given.items() if name not in idle}
    also = sorted(names.short_names().get(name, name) for name in seeded)
    return json.dumps([kept, seed, also], sort_keys=True)


def compared_figures(trace: Iterable[Mapping[str, Any]]) -> TraceRows:
    """The columns of a trace that are compared and drawn, without its diagnostics."""
    return [
        {name: value for name, value in row.items() if name in _KEPT or name.startswith(_SPLITS)}
        for row in trace
    ]


def _plain(value: Any) -> Any:
    """1.0 is the same setting as 1."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
