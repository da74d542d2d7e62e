"""Claimed against obtained, by one rule.

The error of an obtained figure is the standard error over test rows and, with several seeds, the one of their
mean, added in squares. Within two errors of the claim it *agrees*; otherwise it is *better* or *worse*. A
training shorter than the paper's says so. Seconds are of other computers and are not judged; neither is one
seed of a figure without an error over rows.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from natgrad.models import registry
from natgrad.sweep.choice import deciding_row, is_number
from natgrad.sweep.plan import SweepSection

ERRORS_APART = 2.0  # within so many of them two figures agree
NO_ERROR = "one seed, no error known"


class Obtained(NamedTuple):
    """A mean over seeds, its error, and what the trainings took: epochs, and seconds of training each."""

    value: float | None
    error: float
    seeds: int
    epochs: int
    seconds: float


def obtained(lines: Sequence[Mapping[str, Any]], section: SweepSection, column: str, error: str) -> Obtained:
    """The figure of a column over the recorded trials of one setting, and that of its standard error."""
    both = [(line, deciding_row(line["rows"], section)) for line in lines]
    ends = [row for _, row in both if row is not None]
    found = [_figures(line, row) for line, row in both if row is not None]
    values = [own[column] for own in found if is_number(own.get(column))]
    epochs = min((row["epoch"] for row in ends), default=0)
    seconds = statistics.fmean([row["seconds"] for row in ends]) if ends else math.nan
    if not values:
        return Obtained(None, math.nan, 0, epochs, seconds)
    errors = [own[error] for own in found if is_number(own.get(error))]
    over_rows = statistics.fmean(errors) if errors else 0.0
    over_seeds = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return Obtained(statistics.fmean(values), math.hypot(over_rows, over_seeds), len(values), epochs, seconds)


def judged_claim(claimed: float | None, column: str, found: Obtained, epochs: int) -> str:
    """What a figure says of a claim.

    >>> judged_claim(-84.9, "test_ll", Obtained(-84.6, 0.2, 1, 100, 9.0), 100)
    'agrees'
    >>> judged_claim(-84.9, "test_ll", Obtained(-86.6, 0.2, 1, 50, 9.0), 100)
    'worse, with 50 of 100 epochs'
    """
    if found.value is None:
        return "not obtained"
    if claimed is None:
        return "no number claimed"
    if column.endswith("seconds"):
        return "other computers"
    short = f", with {found.epochs} of {epochs} epochs" if found.epochs < epochs else ""
    if found.error == 0:
        return NO_ERROR + short
    return _side(found.value - claimed, ERRORS_APART * found.error, column) + short


def judged_comparison(better: Obtained, worse: Obtained, column: str) -> str:
    """What two figures say of a claim that one variant ends better than the other."""
    if better.value is None or worse.value is None:
        return "not obtained"
    margin = ERRORS_APART * math.hypot(better.error, worse.error)
    if margin == 0:
        return NO_ERROR
    said = {"better": "holds", "worse": "does not hold", "agrees": "undecided, within two errors"}
    return said[_side(better.value - worse.value, margin, column)]


def _side(gap: float, margin: float, column: str) -> str:
    if abs(gap) <= margin:
        return "agrees"
    higher = registry.is_higher_better(column) or "_ll" in column  # a likelihood, whatever it is of
    return "better" if (gap > 0) == higher else "worse"


def _figures(line: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """All that is known of a trial: its last row, and over it the final evaluation."""
    spent = {"epoch_seconds": row["seconds"] / row["epoch"]} if row["epoch"] else {}
    return {**row, **(line.get("evaluated") or {}), **spent}
