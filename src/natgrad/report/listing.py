"""The runs of a folder and what became of them, without JAX; a damaged one is a line like the others."""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from natgrad.data.catalogue import CATALOGUE
from natgrad.errors import InputError, Newer
from natgrad.report import columns
from natgrad.report.reading import DAMAGED, NEWER, Record, read_run

FIGURES = (
    *("data", "binarize", "rows", "method", "kind", "epochs", "epochs_wanted", "best_epoch"),
    *("best_valid_loss", "criterion", "best_criterion", "valid", "valid_title", "valid_value"),
    *("headline", "headline_title", "headline_value", "seconds"),
)
COMPARABLE = ("data", "binarize", "rows", "headline", "valid")
"""What runs have in common that may be compared."""
_ROWS = ("split_seed", "classes", "test_rows")  # settings that decide held-out rows


def list_runs(folder: str | Path) -> list[dict[str, Any]]:
    """A line for every run in or below a folder.

    Runs on the same data, binarized alike and reported by the same figure, stand together, the best on
    validation data first: by that figure of the state that is used, then by what its kind is compared by.
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
    last, used, config = record.last, record.used, record.config
    kind = config.model.kind
    headline, criterion = columns.headline(kind, used), columns.criterion(kind)
    valid = criterion if headline is None else columns.on_validation(headline, columns.described([kind]))
    return {
        "data": config.data.name,
        "binarize": _binarization(config.data),
        "rows": _rows(config.data),
        "method": config.method,
        "kind": kind,
        "epochs": last.get("epoch"),
        "epochs_wanted": config.training.epochs,
        "best_epoch": used.get("epoch"),
        "best_valid_loss": record.best.get("valid_loss"),
        "criterion": criterion.name,
        "best_criterion": columns.best(record.rows, criterion).get(criterion.name),
        "valid": valid.name,
        "valid_title": valid.title,
        "valid_value": used.get(valid.name),
        "headline": None if headline is None else headline.name,
        "headline_title": None if headline is None else headline.title,
        "headline_value": None if headline is None else used.get(headline.name),
        "seconds": last.get("seconds"),
    }


def _order(line: dict[str, Any]) -> tuple[Any, ...]:
    """Damaged runs come last."""
    if line["kind"] is None:
        return True, line["name"]
    together = (str(line[key] or "") for key in COMPARABLE)
    known = columns.described([line["kind"]])
    figures = ((line["valid"], line["valid_value"]), (line["criterion"], line["best_criterion"]))
    ranks = (
        math.inf if value is None else columns.as_loss(value, columns.described_column(name, known))
        for name, value in figures
    )
    return False, *together, *ranks, line["name"]


def _binarization(data: Any) -> str | None:
    """How gray values become binary, also where the data set decides it; None where values are binary."""
    chosen, entry = getattr(data, "binarize", None), CATALOGUE.get(data.name)
    if entry is not None and entry.levels == 1 and entry.in_gray is None and chosen == "round":
        return None
    return chosen or (None if entry is None else entry.binarize)


def evaluated_rows(data: Any) -> str:
    """Which rows a run is evaluated on, in words: the data, how they become binary, which rows."""
    return ", ".join(filter(None, (data.name, _binarization(data), _rows(data))))


def _rows(data: Any) -> str | None:
    """The settings that decide which rows are held out, where they are not the usual ones."""
    said = {name: getattr(data, name, None) for name in _ROWS}
    return ", ".join(f"{name} {value}" for name, value in said.items() if value) or None
