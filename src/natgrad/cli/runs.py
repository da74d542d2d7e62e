"""`natgrad runs`: what has been trained, how far it is and how good."""

from pathlib import Path
from typing import Any, Literal

from natgrad.cli.commands import Json, _print

NUMBERS: dict[str, Literal["right"]] = dict.fromkeys(("epochs", "valid", "test LL", "error", "s"), "right")


def runs(folder: Path = Path("runs"), *, json: Json = False) -> None:
    """List the runs in and below a folder with their figures, the best of each data set first.

    Parameters
    ----------
    folder
        Where runs are.
    """
    from natgrad.report.listing import list_runs

    _print({"folder": str(folder), "runs": list_runs(folder)}, json=json, title="", show=_table)


def _table(result: dict[str, Any]) -> None:
    """A table as wide as it must be: a pipe gets whole lines, a terminal cuts the longest names."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    lines = [_short(line) for line in result["runs"]]
    if not lines:
        print(f"no runs in {result['folder']}; `natgrad train` makes one")
        return
    if all(line["error"] == "-" for line in lines):
        lines = [{name: text for name, text in line.items() if name != "error"} for line in lines]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in lines[0]:
        table.add_column(name, no_wrap=True, overflow="ellipsis", justify=NUMBERS.get(name, "left"))
    for line in lines:
        table.add_row(*map(escape, line.values()))
    Console(width=None if Console().is_terminal else 1000).print(table)
    for line in result["runs"]:
        if "problem" in line:
            print(f"{line['name']}: {line['problem']}")


def _short(line: dict[str, Any]) -> dict[str, str]:
    """A line of the list for people."""

    def number(value: float | None, digits: int) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    wanted = "" if line["epochs_wanted"] is None else f"/{line['epochs_wanted']}"
    return {
        "run": line["name"],
        "data": Path(line["data"] or "-").name,
        "method": line["method"] or "-",
        "layers": ",".join(map(str, line["layers"] or "-")),
        "epochs": number(line["epochs"], 0) + wanted,
        "valid": number(line["best_valid_loss"], 3),
        "test LL": number(line["test_ll"], 3),
        "error": "-" if line["test_error"] is None else f"{line['test_error']:.2%}",
        "s": number(line["seconds"], 1),
        "state": line["state"],
    }
