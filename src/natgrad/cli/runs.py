"""`natgrad runs`: what has been trained, how far it is and how good."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from natgrad.cli.commands import Json, _print

if TYPE_CHECKING:
    from rich.table import Table

TEXTS = ("run", "method", "kind", "state")  # what is not one of them is a number
_HEADS = (10, 5)  # letters of a line of a head: fewer where a table does not fit


def runs(folder: Path = Path("runs"), *, json: Json = False) -> None:
    """List the runs in a folder and its subfolders: a table for runs that can be compared, the best first.

    Parameters
    ----------
    folder
        Where runs are.
    """
    from natgrad.report.listing import list_runs

    _print({"folder": str(folder), "runs": list_runs(folder)}, json=json, title="", show=_tables)


def _tables(result: dict[str, Any]) -> None:
    """A table of runs that can be compared, for each such set; then what is wrong with damaged runs."""
    from natgrad.report.listing import COMPARABLE

    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in result["runs"]:
        found.setdefault(tuple(line[name] for name in COMPARABLE), []).append(line)
    if not found:
        print(f"no runs in {result['folder']}; `natgrad train` makes one")
    for number, lines in enumerate(found.values()):
        print(end="\n" if number else "")
        print(_caption(lines[0]))
        _table(lines)
    for line in result["runs"]:
        if "problem" in line:
            print(f"{line['name']}: {line['problem']}")


def _caption(line: dict[str, Any]) -> str:
    """What the runs of a table have in common."""
    if line["kind"] is None:
        return "cannot be read:"
    data = ", ".join(filter(None, (Path(line["data"]).name, line["binarize"], line["rows"])))
    return f"{data}: ranked by {line['valid_title']}"


def _table(lines: list[dict[str, Any]]) -> None:
    """A table as wide as it must be: a pipe gets whole lines, a terminal several tables with whole names."""
    from rich.console import Console

    from natgrad.cli.tables import fitting_columns

    shown = [_short(line) for line in lines]
    if len({line["kind"] for line in lines}) < 2:
        shown = [{name: text for name, text in line.items() if name != "kind"} for line in shown]
    console = Console(width=None if Console().is_terminal else 1000)
    for head in _HEADS:
        heads = {name: textwrap.wrap(name, head, break_long_words=False) for name in shown[0]}
        widths = {name: max(map(len, (*heads[name], *(line[name] for line in shown)))) for name in heads}
        parts = fitting_columns(widths, console.width, 1)
        if len(parts) == 1:
            break
    for names in parts:
        console.print(_part([{name: line[name] for name in names} for line in shown], heads))


def _part(shown: list[dict[str, str]], heads: Mapping[str, list[str]]) -> "Table":
    """Some columns of the runs; a name that is longer than a line is folded."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in shown[0]:
        side: Literal["left", "right"] = "left" if name in TEXTS else "right"
        overflow: Literal["fold", "ellipsis"] = "fold" if name == "run" else "ellipsis"
        head = escape("\n".join(heads[name]))
        table.add_column(head, no_wrap=name != "run", overflow=overflow, justify=side)
    for line in shown:
        table.add_row(*map(escape, line.values()))
    return table


def _short(line: dict[str, Any]) -> dict[str, str]:
    """A line of the list for people."""
    if line["kind"] is None:
        return {"run": line["name"], "state": line["state"]}
    from natgrad.report.columns import described, described_column, shown_value

    known = described([line["kind"]])
    wanted = "" if line["epochs_wanted"] is None else f"/{line['epochs_wanted']}"
    named = {line["valid"]: (line["valid_title"], line["valid_value"])}
    named |= {line["headline"]: (line["headline_title"], line["headline_value"])} if line["headline"] else {}
    figures = {
        title: shown_value(described_column(name, known), {name: value}) or "-"
        for name, (title, value) in named.items()
    }
    return {
        "run": line["name"],
        "method": line["method"] or "-",
        "kind": line["kind"] or "-",
        "epochs": ("-" if line["epochs"] is None else f"{line['epochs']:.0f}") + wanted,
        "best epoch": "-" if line["best_epoch"] is None else f"{line['best_epoch']:.0f}",
        **figures,
        "s": "-" if line["seconds"] is None else f"{line['seconds']:.1f}",
        "state": line["state"],
    }
