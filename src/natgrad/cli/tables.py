"""Tables for people, on stdout."""

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def record_printer(title: str) -> Callable[[dict[str, Any]], None]:
    """A printer of one record: a name and a value per line, then lists of records as tables."""

    def show(record: dict[str, Any]) -> None:
        table = Table(title=escape(title), title_justify="left", show_header=False, box=None, pad_edge=False)
        listed = {name: value for name, value in record.items() if _is_list_of_records(value)}
        for name, value in record.items():
            if name not in listed:
                table.add_row(f"[dim]{name}[/dim]", escape(_text(value)))
        Console(soft_wrap=True).print(table)
        for name, value in listed.items():
            print(f"{name}:")
            print_rows(value)

    return show


def print_rows(records: list[dict[str, Any]]) -> None:
    """Print records of the same kind, one per line."""
    heads = {name: name.removesuffix("_shape").replace("_mb", " MB") for name in records[0]}
    cells = {name: [_text(record[name]) for record in records] for name in heads}
    console = Console(width=None if Console().is_terminal else 1000)
    widths = {name: max(map(len, (heads[name], *cells[name]))) for name in heads}
    shown = list(zip(*cells.values(), strict=True))
    key = next((n for n in range(1, len(heads)) if len({row[:n] for row in shown}) == len(shown)), 1)
    for names in fitting_columns(widths, console.width, key):
        table = Table(box=None, pad_edge=False)
        for name in names:
            table.add_column(heads[name], no_wrap=len(names) > 1, overflow="fold")
        for row in zip(*(cells[name] for name in names), strict=True):
            table.add_row(*map(escape, row))
        console.print(table)


def fitting_columns(widths: dict[str, int], room: int, key: int) -> list[list[str]]:
    """Columns in tables that fit a terminal; each begins with the first columns, which tell rows apart.

    >>> fitting_columns({"name": 9, "size": 5, "loss": 7, "rate": 7}, 26, 1)
    [['name', 'size', 'loss'], ['name', 'rate']]
    """
    first = list(widths)[:key]
    found: list[list[str]] = [[]]
    for name in widths:
        if found[-1] and sum(widths[each] + 2 for each in found[-1]) + widths[name] > room:
            found.append(list(first))
        found[-1].append(name)
    return found


def _is_list_of_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(inner, dict) for inner in value)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.1f}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return f"[{', '.join(_copied(inner) for inner in value)}]"
    return str(value)


def _copied(value: Any) -> str:
    """A value inside a list, with enough digits to be copied.

    >>> _text([0.1, 1 / 3, 2, [1e-12]])
    '[0.1, 0.3333333333, 2, [1e-12]]'
    """
    return f"{value:.10g}" if isinstance(value, float) else _text(value)
