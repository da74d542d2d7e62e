"""A run folder: the whole truth of a run.

config.toml        complete and resolved         trace.jsonl    one row per evaluation
environment.json   versions, machine, data       state/         parameters and everything else, atomically
samples.png        what the model dreams
"""

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from natgrad import config
from natgrad.errors import InputError


def check(out: str | Path | None) -> None:
    """Refuse, before any work, a folder that cannot become a run."""
    if out is None:
        return
    folder = Path(out)
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if nearest == folder and folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"the output folder {folder} is not empty; give another --out or remove it")
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise InputError(
            f"cannot write the run to {folder}: {nearest} is not a folder you may write; give another --out"
        )


def create(out: str | Path | None, settings: config.Config) -> Path:
    """Make the folder of a new run and write its config; by default `runs/<data>-<method>-<number>`."""
    folder = Path(out) if out is not None else fresh(settings)
    check(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / "config.toml", config.dump(settings))
    except OSError as error:
        raise InputError(f"cannot write the run to {folder}: {error.strerror}; give another --out") from None
    return folder


def discard_unrecorded(folder: Path) -> None:
    """Remove a run that failed before its first record: there is nothing in it to keep."""
    if not (folder / "trace.jsonl").exists():
        shutil.rmtree(folder, ignore_errors=True)


def open_run(folder: str | Path) -> tuple[Path, config.Config]:
    """An existing run and its config."""
    path = Path(folder)
    if not (path / "config.toml").is_file():
        raise InputError(
            f"{path} is not a run folder (it has no config.toml); give a folder that `natgrad train` wrote"
        )
    return path, config.resolve({}, path / "config.toml")


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all: to a temporary name, then renamed."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def append(folder: Path, row: Mapping[str, Any]) -> None:
    """Add a row to the trace."""
    with (folder / "trace.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json_line(row) + "\n")


def trace(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of the trace; a last line cut off by a kill is left out."""
    path = folder / "trace.jsonl"
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            yield json.loads(line)
        except ValueError:
            if number < len(lines):
                raise InputError(f"line {number} of {path} is damaged; remove that line") from None


def json_line(value: Any) -> str:
    """One line of strict JSON; numbers that are not finite become null."""
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def fresh(settings: config.Config) -> Path:
    """The first `runs/<data>-<method>-<number>` that does not exist."""
    stem = f"{Path(settings.data.name).stem}-{settings.method}"
    number = 1
    while (Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return Path("runs") / f"{stem}-{number}"
