"""`natgrad sweep`: many trainings of one file, compared on validation data."""

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from natgrad.cli import commands
from natgrad.cli.commands import Json, Quiet
from natgrad.cli.dotted import literal

Alone = Annotated[bool, Parameter(negative="")]


def sweep(  # noqa: PLR0913 - every flag of the command
    config: Path,
    *,
    workers: int | None = None,
    out: Path | None = None,
    record: Path | None = None,
    join: str | None = None,
    quiet: Quiet = False,
    dry_run: Alone = False,
    compare_only: Alone = False,
    json: Json = False,
) -> None:
    """Train all combinations of the values that a file lists, and compare them on validation data.

    Finished trials are skipped and interrupted ones resumed: the same command continues a sweep.
    Dotted flags override values of the file.

    Parameters
    ----------
    config
        A TOML file: a run's config with lists, seeds = [0, 1, 2], and a section [sweep].
    workers
        Trainings at a time, one core each; by default as many as there are cores.
    out
        The folder of the trials; by default sweeps/ and the file's name.
    record
        The file of the trials' results, a JSON line each; by default trials.jsonl in that folder.
    join
        A store that workers on any hosts share, each with this command: postgresql://USER@HOST/DATABASE,
        mysql://... or the path of a journal file on a shared disk.
    dry_run
        Show what varies, and the trials, and stop.
    compare_only
        Train nothing: compare what the record has.
    """
    from natgrad.sweep.preview import preview
    from natgrad.sweep.run import sweep as run_sweep

    given = {name: literal(text) for name, text in commands.GIVEN.items()}
    if dry_run:
        asked = preview(config, given, out=out, record=record)
        return commands._print(asked, json=json, title=str(config), show=_list_trials)
    say = None if quiet else lambda line: print(line, file=sys.stderr, flush=True)
    found = run_sweep(
        config,
        workers=workers,
        out=out,
        record=record,
        compare_only=compare_only,
        settings=given,
        say=say,
        join=join,
    )
    commands._print(found, json=json, title=str(config), show=_show)
    if found["failed"]:
        sys.exit(1)
    return None


def _show(found: dict[str, Any]) -> None:
    """The best of every variant with what was tried, or without variants all; then what deserves doubt."""
    from natgrad.cli.tables import print_rows
    from natgrad.sweep.table import brief, cells, has_table_of_best

    lines = found["settings"]
    if has_table_of_best(found):
        lines = [line | {"setting": _varied(line)} for line in found["chosen"]]
    print_rows([{brief(head): cell for head, cell in row.items()} for row in cells(found["columns"], lines)])
    for warning in found["warnings"]:
        print(warning)
    for name, error in found["failed"].items():
        print(f"failed: {name}: {error}")
    print(f"ordered by the {found['objective']}\ntable    {found['table']}\npicture  {found['picture']}")


def _varied(line: dict[str, Any]) -> dict[str, Any]:
    """A setting's values of what its variant tries several of, as far as its method reads it."""
    return {name: line["setting"][name] for name in line["tried"] if name in line["setting"]}


def _list_trials(found: dict[str, Any]) -> None:
    """What varies in every variant, how much there is to do, and every trial of a grid."""
    from natgrad.sweep.table import brief, setting_label

    for variant, values in found["varies"].items():
        tried = [f"{brief(name)} {_several(each)}" for name, each in values.items()]
        print(f"{variant or 'varies'}: {'; '.join(tried) or 'one setting'}")
    print(f"{found['total']} trials, {found['recorded']} of them recorded")
    if found["confirm"]:
        print(f"then the best of every variant with the seeds {_several(found['confirm'])}")
    for trial in (each for each in found["trials"] if "trial" in each):
        variant = f"{trial['variant']}: " if trial["variant"] else ""
        print(f"{trial['trial']}  {variant}{setting_label(trial['setting'])}")


def _several(values: Any) -> str:
    from natgrad.sweep.table import short_text

    if isinstance(values, list):
        return ", ".join(map(short_text, values))
    return f"{values['low']} to {values['high']}" + " on a logarithmic scale" * values["log"]
