"""What the columns of a trace mean to a reader: by a kind's spec, by what all traces hold, or by a guess.

No name of a kind is known here. A kind that is not installed, or a column that nobody describes, is shown
under a title made from its name.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from natgrad.errors import InputError
from natgrad.models import registry
from natgrad.models.registry import COLUMNS, Column, Spec

_Row = Mapping[str, Any]
AXES = ("epoch", "step", "seconds", "cpu_seconds")
LOSS = "valid_loss"  # every trace has it
REFUSED = "steps_refused"  # since the evaluation before: only their sum is a final figure


def spec_if_known(kind: str) -> Spec | None:
    """The spec of a kind, or None where it cannot be had here."""
    try:
        return registry.spec_of(kind)
    except (InputError, ImportError, AttributeError):
        return None


def described(kinds: Iterable[str]) -> dict[str, Column]:
    """The columns that are described, by name: those of all traces, then those of the kinds.

    A kind may describe a shared column as its own; where kinds differ, the first one's words count.
    """
    own: dict[str, Column] = {}
    for spec in map(spec_if_known, dict.fromkeys(kinds)):
        for column in spec.columns if spec is not None else ():
            own.setdefault(column.name, column)
    return {column.name: column for column in COLUMNS} | own


def described_column(name: str, known: Mapping[str, Column]) -> Column:
    """A column as it is described, or under a title made from its name.

    >>> described_column("new_figure", {}).title
    'new figure'
    """
    return known.get(name) or Column(name, name.replace("_", " "))


def headline(kind: str, row: _Row) -> Column | None:
    """The column that the result of a kind with such rows is reported by, if the kind is known."""
    spec = spec_if_known(kind)
    return None if spec is None else described_column(spec.headline_of(row), described([kind]))


def on_validation(column: Column, known: Mapping[str, Column]) -> Column:
    """The same figure on validation data, where a column is of test data.

    >>> on_validation(Column("test_ll", "test LL"), described(["helmholtz"])).title
    'valid LL'
    """
    name = column.name.replace("test_", "valid_", 1) if column.name.startswith("test_") else column.name
    return column if name == column.name else described_column(name, known)


def validation_figures(kind: str, row: _Row) -> list[Column]:
    """What a row says of held-out rows while a model trains: no test figures, the reported one first."""
    known = described([kind])
    shown = [on_validation(column, known) for column in final(kind, row)[0]]
    return [column for column in dict.fromkeys(shown) if row.get(column.name) is not None]


def criterion(kind: str) -> Column:
    """The column on validation data by which a kind's runs are compared."""
    spec = spec_if_known(kind)
    return described_column(LOSS if spec is None else spec.criterion, described([kind]))


def final(kind: str, row: _Row) -> tuple[list[Column], list[Column]]:
    """The columns of a kind's final figures: its own, its headline first, and those that all kinds have."""
    shared, known, spec = {column.name for column in COLUMNS}, described([kind]), spec_if_known(kind)
    first = None if spec is None else described_column(spec.headline_of(row), known)
    wanted = [each for each in known.values() if (each.final or each.name == LOSS) and each != first]
    own = [each for each in wanted if each.name not in shared]
    rest = [each for each in wanted if each.name in shared and each.name not in (*AXES, REFUSED)]
    return own if first is None else [first, *own], rest


def best(rows: Sequence[_Row], column: Column) -> _Row:
    """The row that is best by a column, the first of equals; an empty one where no row has it."""
    evaluated = [row for row in rows if row.get(column.name) is not None]
    return min(evaluated, key=lambda row: as_loss(row[column.name], column), default={})


def as_loss(value: float, column: Column) -> float:
    """A value of a column as something that is better the lower it is."""
    return -value if column.higher else value


def shown_value(column: Column, row: _Row) -> str | None:
    """A column's value in a row, with its standard error where there is one; None where there is no value.

    >>> shown_value(Column("ll", "log-likelihood", error="se"), {"ll": -17.294, "se": 0.2191})
    '-17.29 ± 0.22'
    >>> shown_value(Column("wrong", "error", percent=True), {"wrong": 0.035})
    '3.50%'
    """
    value, error = row.get(column.name), row.get(column.error)
    if value is None:
        return None
    if column.percent:
        return f"{value:.2%}" + (f" ± {error:.2%}" if error else "")
    if error and 1e-6 < error < 1e6:
        digits = max(0, 1 - math.floor(math.log10(error)))  # two that count
        return f"{value:.{digits}f} ± {error:.{digits}f}"
    return number(value)


def number(value: float) -> str:
    """A number as a table shows it.

    >>> [number(value) for value in (3, 17.44, -0.11726, 2.5e-7, 0.0)]
    ['3', '17.440', '-0.1173', '2.50e-07', '0.0000']
    """
    if isinstance(value, int):
        return str(value)
    size = abs(value)
    if size and not 1e-3 <= size < 1e6:
        return f"{value:.2e}"
    return f"{value:.3f}" if size >= 1 else f"{value:.4f}"


def sentence(title: str) -> str:
    """A title as the beginning of a line."""
    return title[:1].upper() + title[1:]
