"""Which charts a page has, from what the traces hold. Python says what is drawn, `page.js` draws it."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from natgrad.report.markup import Markup, join, tag
from natgrad.report.reading import Record

POINTS = 1000  # rows of a run that are drawn; longer traces are thinned evenly
LAYER = re.compile(r"(generation|recognition)\.(\d+)\.(\w+)")
COUNTS = {"steps_refused", "divergences"}
APART = {"epoch", "step", "seconds", "valid_ll", "test_loss", "test_ll_se", "mc_se"}


class Chart(NamedTuple):
    """Curves of one or more columns of the trace, named as a reader would."""

    title: str
    columns: tuple[str, ...]
    unit: str = ""
    log: bool = False
    note: str = ""


LEARNING = (
    Chart("Loss", ("train_loss", "valid_loss"), "nats per row", note="dashed: training, solid: validation"),
    Chart("Test log-likelihood", ("test_ll",), "nats per row", note="band: two standard errors over rows"),
    Chart("Error", ("valid_error", "test_error"), "share of rows", note="dashed: validation, solid: test"),
    Chart("Squared error", ("valid_squared_error", "test_squared_error"), note="dashed: validation"),
    Chart("KL from the true law", ("kl",), "nats", log=True, note="exact, by enumeration"),
)
STEP = (
    Chart("KL length of a step", ("step_kl",), "nats", log=True, note="half of step·F·step"),
    Chart("Gradient norm", ("gradient_norm",), log=True),
    Chart("Direction norm", ("direction_norm",), log=True, note="after the solve"),
    Chart("Step norm", ("step_norm",), log=True),
    Chart("Cosine of gradient and direction", ("cosine",)),
    Chart("Effective samples", ("effective_samples",), note="of the importance weights"),
    Chart("Solver iterations", ("solver_iterations",)),
    Chart("Residual of the solve", ("residual",), log=True, note="relative"),
    Chart("Damping", ("damping",), log=True),
    Chart("Rate of the step", ("rate",), log=True),
    Chart("Reduction ratio", ("reduction_ratio",), note="actual over predicted fall of the loss"),
    Chart("Steps refused", ("steps_refused",), note="not finite, not taken"),
)
LAYERS = (
    Chart("Gradient norm", ("gradient_norm",), log=True),
    Chart("Direction norm", ("direction_norm",), log=True),
    Chart("Cosine of gradient and direction", ("cosine",)),
    Chart("Residual of the solve", ("residual",), log=True, note="relative"),
    Chart("Condition of the damped blocks", ("condition",), log=True, note="largest, estimated"),
)


def learning(records: Sequence[Record]) -> Markup:
    """Every learning curve against epochs and, beside it, against seconds of training."""
    found = _present(LEARNING, _columns(records))
    return join(_figure(chart, x) for chart in found for x in ("epoch", "seconds"))


def step(records: Sequence[Record]) -> Markup:
    """Diagnostics of whole steps: those known by name, then whatever else a trace holds."""
    columns = _columns(records)
    named = {column for chart in (*LEARNING, *STEP) for column in chart.columns} | APART
    rest = sorted(column for column in columns - named if not LAYER.fullmatch(column))
    more = tuple(Chart(column.replace("_", " ").capitalize(), (column,)) for column in rest)
    return join(_figure(chart, "epoch") for chart in _present((*STEP, *more), columns))


def layers(records: Sequence[Record]) -> Markup:
    """Diagnostics layer by layer, for the run that the reader chooses."""
    parts = [match[3] for column in _columns(records) if (match := LAYER.fullmatch(column))]
    return join(_figure(chart, "epoch", layers=True) for chart in _present(LAYERS, set(parts)))


def data(record: Record) -> dict[str, Any]:
    """A run's columns as the page's script reads them, thinned and with seven digits."""
    rows = record.rows
    stride = -(-len(rows) // POINTS) or 1
    kept = [*rows[:-1:stride], *rows[-1:]]
    columns = {name: [_short(row.get(name)) for row in kept] for name in sorted(_columns([record]))}
    return {"name": record.name, "columns": columns}


def _present(charts: Sequence[Chart], columns: set[str]) -> list[Chart]:
    return [chart for chart in charts if columns.intersection(chart.columns)]


def _columns(records: Sequence[Record]) -> set[str]:
    """Columns that hold at least one number; counts that never left zero say nothing."""
    rows = (row for record in records for row in record.rows)
    found = [(name, value) for row in rows for name, value in row.items()]
    return {name for name, value in found if value or (value is not None and name not in COUNTS)}


def _figure(chart: Chart, x: str, *, layers: bool = False) -> Markup:
    told = "; ".join(part for part in (chart.unit, chart.note) if part)
    caption = tag("figcaption", tag("b", chart.title), " ", tag("small", told))
    return tag(
        "figure",
        caption,
        tag("div", class_="plot"),
        class_="chart",
        data_title=chart.title,
        data_x=x,
        data_y=" ".join(chart.columns),
        data_log=chart.log,
        data_layers=layers,
    )


def _short(value: float | None) -> float | None:
    return float(f"{value:.7g}") if isinstance(value, float) else value
