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
    table = Table(box=None, pad_edge=False)
    for name in records[0]:
        table.add_column(name.removesuffix("_shape").replace("_mb", " MB"), no_wrap=True, overflow="ellipsis")
    for record in records:
        table.add_row(*(escape(_text(value)) for value in record.values()))
    Console(width=None if Console().is_terminal else 1000).print(table)


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
        return " x ".join(_text(inner) for inner in value)
    return str(value)
