"""`natgrad reproduce`: a paper's table or figure, claimed beside obtained."""

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from natgrad.cli import commands
from natgrad.cli.commands import Json, Quiet
from natgrad.cli.sweep import Alone
from natgrad.errors import InputError
from natgrad.reproduce.limits import Budget


def reproduce(
    name: str | None = None,
    *,
    list_all: Annotated[bool, Parameter(name="--list", negative="")] = False,
    budget: Annotated[Budget, Parameter(name="*")] = Budget(),  # noqa: B008
    out: Path | None = None,
    quiet: Quiet = False,
    dry_run: Alone = False,
    json: Json = False,
) -> None:
    """Train what a table or a figure of a paper needs, and compare with what the paper claims.

    The same command continues where it was stopped; with more epochs or seeds it adds to the record.

    Parameters
    ----------
    name
        The table or figure, as --list has it, or a TOML file of your own.
    list_all
        Show what there is, and which data files are missing.
    out
        The folder of trials and record; by default reproductions/ and the name.
    dry_run
        Show what would be trained, about how long that takes, and stop.
    """
    from natgrad.reproduce import run as reproductions

    if list_all:
        lines = reproductions.listed_reproductions()
        return commands._print({"reproductions": lines}, json=json, title="", show=_show_list)
    if name is None:
        raise InputError("expected the name of a reproduction, got none; natgrad reproduce --list shows them")
    if dry_run:
        asked = reproductions.reproduction_preview(name, budget, out=out)
        return commands._print(asked, json=json, title=name, show=_show_preview)
    say = None if quiet else lambda line: print(line, file=sys.stderr, flush=True)
    found = reproductions.reproduce_paper(name, budget, out=out, say=say)
    commands._print(found, json=json, title=name, show=_show)
    if found["failed"]:
        sys.exit(1)
    return None


def _show_list(found: dict[str, Any]) -> None:
    from natgrad.cli.tables import print_rows

    lines = found["reproductions"]
    several = ("data", "missing")
    print_rows([line | {key: ", ".join(line[key]) or "-" for key in several} for line in lines])


def _show_preview(found: dict[str, Any]) -> None:
    """What would be trained, and about how long."""
    from natgrad.cli.tables import print_rows
    from natgrad.sweep.compare import varied
    from natgrad.sweep.table import setting_label

    print(f"{found['place']}: {found['about']}")
    names = varied([line["setting"] for line in found["trials"]])
    rows = [
        line
        | {"setting": setting_label({key: line["setting"][key] for key in names if key in line["setting"]})}
        for line in found["trials"]
    ]
    print_rows([row | {"measured": "measured" if row["measured"] else "the paper's"} for row in rows])
    for text in filter(None, (found["missing"], found.get("note"))):
        print(text)
    length, minutes = found["epochs"], found["minutes"]
    print(f"epochs: {length or 'after one of each is timed'}; minutes: {minutes or 'not known yet'}")


def _show(found: dict[str, Any]) -> None:
    """Claimed beside obtained, then what the paper says in words, then what deserves doubt."""
    from natgrad.cli.tables import print_rows

    print(f"{found['place']}: {found['about']}")
    print_rows([_cells(line) for line in found["lines"]])
    for line in found["comparisons"]:
        gap = "-" if line["difference"] is None else f"{line['difference']:+.3f}"
        print(f"{line['says']} ({line['better']} - {line['worse']}: {gap}): {line['verdict']}")
    for text in filter(None, (*found["warnings"], found["missing"], found.get("note"))):
        print(text)
    for name, error in found["failed"].items():
        print(f"failed: {name}: {error}")
    print(f"record: {found['out']}/trials.jsonl")
    if found["picture"]:
        print(f"curves: {found['picture']}")


def _cells(line: dict[str, Any]) -> dict[str, str]:
    """A line for people."""
    value, error = line["obtained"], line["error"]
    seconds = "-" if line["seconds"] is None else f"{line['seconds']:.0f}"
    claimed = "-" if line["claimed"] is None else f"{line['claimed']:g}"
    return {
        "variant": line["variant"],
        "figure": line["figure"],
        "claimed": claimed,
        "obtained": "-" if value is None else f"{value:.3f} ±{error:.3f}",
        "epochs": f"{line['epochs']} of {line['claimed_epochs']}",
        "seconds": seconds,
        "seeds": str(line["seeds"]),
        "verdict": line["verdict"],
    }
