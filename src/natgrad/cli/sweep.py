"""`natgrad sweep`: many trainings of one file, compared on validation data."""

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from natgrad.cli import commands
from natgrad.cli.commands import Json, Quiet
from natgrad.cli.dotted import literal


def sweep(
    config: Path,
    *,
    workers: int | None = None,
    out: Path | None = None,
    quiet: Quiet = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> None:
    """Train every setting of a file in which lists stand for several values; compare them on validation data.

    Finished trials are skipped and interrupted ones resumed: the same command continues a sweep.
    Dotted flags set values over those of the file.

    Parameters
    ----------
    config
        A TOML file: a run's config with lists, seeds = [0, 1, 2], and a section [sweep].
    workers
        Trainings at a time, one core each; by default as many as there are cores.
    out
        The folder of the trials; by default sweeps/ and the file's name.
    dry_run
        Show the trials and stop.
    """
    from natgrad.sweep.run import plan_of
    from natgrad.sweep.run import sweep as run_sweep

    given = {name: literal(text) for name, text in commands.GIVEN.items()}
    if dry_run:
        trials = plan_of(config, given)
        return commands._print({"trials": trials}, json=json, title=str(config), show=_list_trials)
    say = None if quiet else lambda line: print(line, file=sys.stderr, flush=True)
    found = run_sweep(config, workers=workers, out=out, settings=given, say=say)
    commands._print(found, json=json, title=str(config), show=_show)
    if found["failed"]:
        sys.exit(1)
    return None


def _show(found: dict[str, Any]) -> None:
    from natgrad.cli.tables import rows
    from natgrad.sweep.table import HEADS, figures, text

    names = list(dict.fromkeys(name for record in found["settings"] for name in record["setting"]))
    rows(
        [
            {name.split(".")[-1]: text(record["setting"].get(name, "")) for name in names}
            | dict(zip(HEADS, figures(record), strict=True))
            for record in found["settings"]
        ]
    )
    for name, error in found["failed"].items():
        print(f"failed: {name}: {error}")
    print(f"ordered by the {found['objective']}; table: {found['table']}; picture: {found['picture']}")


def _list_trials(found: dict[str, Any]) -> None:
    for trial in found["trials"]:
        print(trial.get("trial") or trial)
