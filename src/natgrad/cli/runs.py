"""`natgrad runs`: what has been trained, how far it is and how good."""

import textwrap
from pathlib import Path
from typing import Any, Literal

from natgrad.cli.commands import Json, _print

TEXTS = ("run", "data", "method", "kind", "state")  # what is not one of them is a number
SHRINKING = ("run", "data")  # what a narrow terminal has less room for
_HEAD = 10  # letters of a line of a head


def runs(folder: Path = Path("runs"), *, json: Json = False) -> None:
    """List the runs in and below a folder with their figures, the best of each data set first.

    Parameters
    ----------
    folder
        Where runs are.
    """
    from natgrad.report.listing import list_runs

    _print({"folder": str(folder), "runs": list_runs(folder)}, json=json, title="", show=_tables)


def _tables(result: dict[str, Any]) -> None:
    """A table for each figure that runs are reported by, then what is wrong with runs that cannot be read."""
    found: dict[str | None, list[dict[str, Any]]] = {}
    for line in result["runs"]:
        found.setdefault(line["headline_title"], []).append(line)
    if not found:
        print(f"no runs in {result['folder']}; `natgrad train` makes one")
    if None in found and len(found) > 1:  # damaged runs have no figure: they need no table of their own
        damaged = found.pop(None)
        found[list(found)[-1]] += damaged
    for number, lines in enumerate(found.values()):
        print(end="\n" if number else "")
        _table(lines)
    for line in result["runs"]:
        if "problem" in line:
            print(f"{line['name']}: {line['problem']}")


def _table(lines: list[dict[str, Any]]) -> None:
    """A table as wide as it must be: a pipe gets whole lines, a terminal folds the longest names."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    title = next((line["headline_title"] for line in lines if line["headline_title"]), None)
    shown = [_short(line, title) for line in lines]
    if len({line["kind"] for line in shown} - {"-"}) < 2:
        shown = [{name: text for name, text in line.items() if name != "kind"} for line in shown]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in shown[0]:
        side: Literal["left", "right"] = "left" if name in TEXTS else "right"
        overflow: Literal["fold", "ellipsis"] = "fold" if name == "run" else "ellipsis"
        table.add_column(
            escape(textwrap.fill(name, _HEAD, break_long_words=False)),
            no_wrap=name not in SHRINKING,
            overflow=overflow,
            justify=side,
        )
    for line in shown:
        table.add_row(*map(escape, line.values()))
    Console(width=None if Console().is_terminal else 1000).print(table)


def _short(line: dict[str, Any], title: str | None) -> dict[str, str]:
    """A line of the list for people."""
    from natgrad.report.columns import headline, number, shown_value

    def text(value: float | None) -> str:
        return "-" if value is None else number(value)

    wanted = "" if line["epochs_wanted"] is None else f"/{line['epochs_wanted']}"
    row = {line["headline"]: line["headline_value"]}
    column = headline(line["kind"], row) if line["headline"] else None
    value = shown_value(column, row) if column else None
    return {
        "run": line["name"],
        "data": Path(line["data"] or "-").name,
        "method": line["method"] or "-",
        "kind": line["kind"] or "-",
        "epochs": ("-" if line["epochs"] is None else f"{line['epochs']:.0f}") + wanted,
        "valid": text(line["best_valid_loss"]),
        **({} if title is None else {title: value or "-"}),
        "s": "-" if line["seconds"] is None else f"{line['seconds']:.1f}",
        "state": line["state"],
    }
