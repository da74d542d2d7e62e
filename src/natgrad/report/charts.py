"""Which charts a page has, from what the traces hold. Python says what is drawn, `page.js` draws it.

Columns that name the same chart are drawn together. A curve of the last of them is solid, of the one before
dashed, of others dotted: test data come after the validation data by which models are chosen.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from natgrad.models.registry import Column
from natgrad.report import columns
from natgrad.report.markup import Markup, join_markup, tag
from natgrad.report.reading import Record

POINTS = 1000  # rows of a run that are drawn; longer traces are thinned evenly
LAYER = re.compile(r"(\w+)\.(\d+)\.(\w+)", re.ASCII)  # part of the model, layer, quantity
COUNTS = {columns.REFUSED, "divergences"}
LINES = ("solid", "dashed", "dotted")


class _Chart(NamedTuple):
    """Curves of one or more columns of the traces."""

    title: str
    columns: tuple[Column, ...]

    @property
    def lines(self) -> list[str]:
        """How the curve of every column is drawn."""
        last = len(LINES) - 1
        return [LINES[min(place, last)] for place in reversed(range(len(self.columns)))]

    @property
    def note(self) -> str:
        """What a reader should know: unit, line styles, what a band is, and what the columns say."""
        units = (column.unit for column in self.columns)
        notes = "; ".join(dict.fromkeys(column.note for column in self.columns if column.note))
        lines = [f"{line}: {each.title}" for line, each in zip(self.lines, self.columns, strict=True)]
        styles = ", ".join(lines) if len(lines) > 1 and "solid:" not in notes else ""
        band = "band:" not in notes and any(column.error for column in self.columns)
        parts = (*units, styles, "band: two standard errors" if band else "", notes)
        return "; ".join(dict.fromkeys(part for part in parts if part))


def learning(records: Sequence[Record]) -> Markup:
    """The columns by which runs are compared, against epochs and, beside it, against seconds of training."""
    return join_markup(_figure(chart, x) for chart in _sorted(records)[0] for x in ("epoch", "seconds"))


def step(records: Sequence[Record]) -> Markup:
    """Everything else that a trace holds of whole steps: what is described first."""
    return join_markup(_figure(chart, "epoch") for chart in _sorted(records)[1])


def layers(records: Sequence[Record]) -> Markup:
    """Diagnostics layer by layer, for the run that the reader chooses."""
    found = [match[3] for name in _present(records) if (match := LAYER.fullmatch(name))]
    described = _described(records)
    known = [name for name in described if name in found]
    every = dict.fromkeys([*known, *sorted(found)])
    return join_markup(
        _figure(_alone(columns.described_column(name, described)), "epoch", layers=True) for name in every
    )


def columns_for_script(record: Record) -> dict[str, Any]:
    """A run's columns as the page's script reads them, thinned and with seven digits."""
    rows = record.rows
    stride = -(-len(rows) // POINTS) or 1
    kept = [*rows[:-1:stride], *rows[-1:]]
    found = {name: [_short(row.get(name)) for row in kept] for name in _present([record])}
    return {"name": record.name, "columns": found}


def curves(records: Sequence[Record]) -> dict[str, dict[str, str]]:
    """How the script draws and names the curve of every column that has a chart."""
    return {
        column.name: {"title": column.title, "line": line, "error": column.error}
        for charts in _sorted(records)
        for chart in charts
        for column, line in zip(chart.columns, chart.lines, strict=True)
    }


def _sorted(records: Sequence[Record]) -> tuple[list[_Chart], list[_Chart]]:
    """The charts of the columns by which runs are compared, and the others."""
    described, present = _described(records), _present(records)
    errors = {column.error for column in described.values()}
    plain = {name for name in present if name not in (*columns.AXES, *errors) and not LAYER.fullmatch(name)}
    rest = sorted(name for name in plain if name not in described and not name.endswith("_se"))
    wanted = [columns.described_column(name, described) for name in (*described, *rest) if name in plain]
    charts = _grouped(each if each.error in present else replace(each, error="") for each in wanted)
    criteria = _criteria(records)
    first = [chart for chart in charts if any(each.name in criteria for each in chart.columns)]
    return first, [chart for chart in charts if chart not in first]


def _grouped(wanted: Iterable[Column]) -> list[_Chart]:
    found: dict[str, list[Column]] = {}
    for column in wanted:
        found.setdefault(columns.sentence(column.chart or column.title), []).append(column)
    return [_Chart(title, tuple(members)) for title, members in found.items()]


def _criteria(records: Sequence[Record]) -> set[str]:
    """The columns that say how good a run is: the loss, each kind's criterion, and what is reported."""
    kinds = {record.config.model.kind for record in records}
    named = (
        column.name for kind in kinds for column in (columns.criterion(kind), *columns.final(kind, {})[0])
    )
    return {columns.LOSS, *named}


def _described(records: Sequence[Record]) -> dict[str, Column]:
    return columns.described(record.config.model.kind for record in records)


def _present(records: Sequence[Record]) -> list[str]:
    """Columns that hold at least one number, as they come; counts that never left zero say nothing."""
    rows = (row for record in records for row in record.rows)
    found = ((name, value) for row in rows for name, value in row.items())
    return list(
        dict.fromkeys(name for name, value in found if value or (value is not None and name not in COUNTS))
    )


def _alone(column: Column) -> _Chart:
    return _Chart(columns.sentence(column.title), (column,))


def _figure(chart: _Chart, x: str, *, layers: bool = False) -> Markup:
    caption = tag("figcaption", tag("b", chart.title), " ", tag("small", chart.note))
    return tag(
        "figure",
        caption,
        tag("div", class_="plot"),
        class_="chart",
        data_title=chart.title,
        data_x=x,
        data_y=" ".join(column.name for column in chart.columns),
        data_log=any(column.log for column in chart.columns),
        data_percent=any(column.percent for column in chart.columns),
        data_layers=layers,
    )


def _short(value: float | None) -> float | None:
    return float(f"{value:.7g}") if isinstance(value, float) else value
