"""The runs of a folder and what became of them, without JAX; a damaged one is a line like the others."""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from natgrad.errors import InputError, Newer
from natgrad.report import columns
from natgrad.report.reading import DAMAGED, NEWER, Record, read_run

FIGURES = (
    *("data", "binarize", "method", "kind", "epochs", "epochs_wanted", "best_valid_loss"),
    *("criterion", "best_criterion", "headline", "headline_title", "headline_value", "seconds"),
)


def list_runs(folder: str | Path) -> list[dict[str, Any]]:
    """A line for every run in or below a folder.

    Runs on the same data, binarized alike and reported by the same figure, stand together, the best on
    validation data first.
    """
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"{place} is not a folder; give one that holds runs, such as the one named by --out")
    return sorted((_line(run, place) for run in _run_folders(place)), key=_order)


def _run_folders(place: Path) -> Iterator[Path]:
    """Run folders: those with a config and either an environment or a trace. Runs hold no further runs."""
    for path, folders, files in os.walk(place):
        if "config.toml" in files and {"environment.json", "trace.jsonl"}.intersection(files):
            folders.clear()
            yield Path(path)
        folders.sort()


def _line(run: Path, place: Path) -> dict[str, Any]:
    name = run.relative_to(place).as_posix() if run != place else run.resolve().name
    try:
        record = read_run(run)
    except InputError as error:
        state = NEWER if isinstance(error, Newer) else DAMAGED
        return (
            {"name": name}
            | dict.fromkeys(FIGURES)
            | {
                "state": state,
                "run": str(run),
                "problem": str(error),
            }
        )
    return {"name": name} | _figures(record) | {"state": record.state, "run": str(run)}


def _figures(record: Record) -> dict[str, Any]:
    """What the line of a sound run says; `headline` is the figure that its kind of model is reported by."""
    last, config = record.last, record.config
    kind = config.model.kind
    headline, criterion = columns.headline(kind, last), columns.criterion(kind)
    return {
        "data": config.data.name,
        "binarize": getattr(config.data, "binarize", None),
        "method": config.method,
        "kind": kind,
        "epochs": last.get("epoch"),
        "epochs_wanted": config.training.epochs,
        "best_valid_loss": record.best.get("valid_loss"),
        "criterion": criterion.name,
        "best_criterion": columns.best(record.rows, criterion).get(criterion.name),
        "headline": None if headline is None else headline.name,
        "headline_title": None if headline is None else headline.title,
        "headline_value": None if headline is None else last.get(headline.name),
        "seconds": last.get("seconds"),
    }


def _order(line: dict[str, Any]) -> tuple[Any, ...]:
    """Damaged runs come last."""
    if line["kind"] is None:
        return True, line["name"]
    together = (str(line[key] or "") for key in ("data", "binarize", "headline", "criterion"))
    value = line["best_criterion"]
    rank = math.inf if value is None else columns.as_loss(value, columns.criterion(line["kind"]))
    return False, *together, rank, line["name"]
