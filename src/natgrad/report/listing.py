"""The runs of a folder and what became of them, without JAX; a damaged one is a line like the others."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from natgrad.errors import InputError, Newer
from natgrad.report.reading import DAMAGED, NEWER, read


def list_runs(folder: str | Path) -> list[dict[str, Any]]:
    """A line for every run in or below a folder, by data set and then from the best test likelihood down."""
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"{place} is no folder; give one that holds runs, such as the one named by --out")
    return sorted((_line(run, place) for run in find(place)), key=_order)


def find(place: Path) -> Iterator[Path]:
    """Run folders: those with a config and either an environment or a trace. Runs hold no further runs."""
    for path, folders, files in os.walk(place):
        if "config.toml" in files and {"environment.json", "trace.jsonl"}.intersection(files):
            folders.clear()
            yield Path(path)
        folders.sort()


def _line(run: Path, place: Path) -> dict[str, Any]:
    name = run.relative_to(place).as_posix() if run != place else run.resolve().name
    try:
        record = read(run)
    except InputError as error:
        state = NEWER if isinstance(error, Newer) else DAMAGED
        return _empty(name) | {"run": str(run), "state": state, "problem": str(error)}
    last, best, config = record.last, record.best, record.config
    return {
        "name": name,
        "data": config.data.name,
        "method": config.method,
        "layers": list(config.model.layers),
        "epochs": last.get("epoch"),
        "epochs_wanted": config.training.epochs,
        "best_valid_loss": best.get("valid_loss"),
        "test_ll": last.get("test_ll"),
        "test_error": last.get("test_error"),
        "seconds": last.get("seconds"),
        "state": record.state,
        "run": str(run),
    }


def _empty(name: str) -> dict[str, Any]:
    known = ("data", "method", "layers", "epochs", "epochs_wanted", "best_valid_loss", "test_ll")
    return {"name": name} | dict.fromkeys((*known, "test_error", "seconds"))


def _order(line: dict[str, Any]) -> tuple[Any, ...]:
    worse = float("inf") if line["test_ll"] is None else -line["test_ll"]
    return line["data"] is None, line["data"] or "", worse, line["name"]
