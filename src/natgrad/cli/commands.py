"""The commands, as functions with the flags people use every day; imports inside, so that help is quick."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from natgrad.cli.dotted import whole
from natgrad.cli.flags import Flags
from natgrad.config import resolve

DOTTED: dict[str, Any] = {}
"""Dotted flags of this call, taken out before the others are parsed."""

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print exactly one JSON line on stdout.")]
Number = Annotated[int, Parameter(converter=whole)]
Quiet = Annotated[bool, Parameter(negative="", help="No progress.")]
Tensorboard = Annotated[bool, Parameter(negative="", help="Write TensorBoard's event files into the run.")]


def train(
    config: Path | None = None,
    *,
    flags: Annotated[Flags, Parameter(name="*")] | None = None,
    out: Path | None = None,
    quiet: Quiet = False,
    tensorboard: Tensorboard = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> None:
    """Train a model and write its run folder; with no argument, a Helmholtz machine on embedded digits.

    Every other setting is a dotted flag, for example --objective.baseline false; --dry-run shows them all.

    Parameters
    ----------
    config
        A TOML file of settings, for example RUN/config.toml to repeat a run.
    out
        The run folder; by default a fresh one under runs/.
    dry_run
        Print the resolved config and stop.
    """
    settings = resolve((flags or Flags()).given() | DOTTED, config)
    if dry_run:
        return _show_config(settings, json=json)
    from natgrad.records.folder import fresh
    from natgrad.training.run import run_config

    events = (out or fresh(settings)) if tensorboard else None
    with watched(settings.training.epochs, events, quiet=quiet) as watch:
        run = run_config(settings, out=events or out, watch=watch, final=True)
    return _print(run.summary, json=json, title=f"trained {run.folder}")


@contextmanager
def watched(epochs: int, events: Path | None, *, quiet: bool) -> Iterator[Any]:
    """A training's progress on the terminal and, where a folder is given, in event files."""
    from natgrad.cli.progress import Progress
    from natgrad.cli.tensorboard import watching

    with Progress(epochs=epochs, quiet=quiet) as bar, watching(bar, events) as watch:
        yield watch


def evaluate(
    run: Path,
    *,
    samples: Number = 1000,
    rows: Number = 0,
    seed: Number = 0,
    memory_mb: float = 256.0,
    json: Json = False,
) -> None:
    """Measure the log-likelihood of a run's model on its test set.

    Parameters
    ----------
    run
        A run folder.
    samples
        Importance samples per row.
    rows
        How many test rows, chosen at random by the split's seed (0: all).
    seed
        Decides the samples.
    memory_mb
        Memory for the samples held at a time.
    """
    from natgrad.models.helmholtz.measure import evaluate_run

    return _print(
        evaluate_run(run, samples=samples, rows=rows, seed=seed, memory_mb=memory_mb),
        json=json,
        title=str(run),
    )


def fisher(
    run: Path, *, rows: Number = 2000, seed: Number = 0, out: Path | None = None, json: Json = False
) -> None:
    """Look at the Fisher matrix of a run's model: blocks, spectra, condition, memory of every solver.

    Parameters
    ----------
    run
        A run folder.
    rows
        How many dreams to estimate it from.
    seed
        Decides the dreams.
    out
        The picture; by default fisher.png in the run folder.
    """
    from natgrad.models.helmholtz.measure import fisher_run

    _print(fisher_run(run, rows=rows, seed=seed, out=out), json=json, title=str(run), show=_table_of_layers)


def data_list(*, json: Json = False) -> None:
    """List the data sets, and where they are."""
    from natgrad.cli.data import list_sets

    sets = list_sets()
    _print({"sets": sets}, json=json, title="data sets", show=_table_of_sets)


def data_get(name: str, *, json: Json = False) -> None:
    """Make sure that a data set's files are here, downloading them where that is possible."""
    from natgrad.cli.data import get

    _print(get(name), json=json, title=name)


def data_check(name: str, *, json: Json = False) -> None:
    """Check a data set's files against their checksums, and read it."""
    from natgrad.cli.data import check

    _print(check(name), json=json, title=name)


def _show_config(settings: Any, *, json: bool) -> None:
    from natgrad.config import dump

    if json:
        _print(settings.model_dump(mode="json"), json=True, title="")
    else:
        print(dump(settings), end="")


def _print(
    result: dict[str, Any], *, json: bool, title: str, show: Callable[[dict[str, Any]], None] | None = None
) -> None:
    """One JSON line for machines, a table for people."""
    if json:
        from natgrad.records.folder import json_line

        print(json_line(result))
    else:
        from natgrad.cli.tables import facts

        (show or facts(title))(result)
    sys.stdout.flush()


def _table_of_layers(result: dict[str, Any]) -> None:
    from natgrad.cli.tables import rows

    drop = {"median", "cg_mb", "diagonal_mb"}
    rows(
        [
            {key.replace("_mb", " MB"): value for key, value in row.items() if key not in drop}
            for row in result["layers"]
        ]
    )
    print(f"damping {result['damping']}, {result['rows']} dreams; picture: {result['picture']}")


def _table_of_sets(result: dict[str, Any]) -> None:
    from natgrad.cli.tables import rows

    shown = ("name", "visible", "image_shape", "rows", "where")
    short = [{key: found[key] for key in shown} for found in result["sets"]]
    rows([found | {"rows": "/".join(map(str, (found["rows"] or {}).values())) or None} for found in short])
    print("rows: train/valid/test; descriptions and more: natgrad data list --json")
