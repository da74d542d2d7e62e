"""The commands of every kind of model, as functions; imports inside, so that help is quick."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from natgrad.cli.dotted import values
from natgrad.config import read_toml, resolve
from natgrad.errors import InputError

GIVEN: dict[str, str] = {}
"""Settings of this call as texts, taken out before the other arguments are parsed."""

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print exactly one JSON line on stdout.")]
Quiet = Annotated[bool, Parameter(negative="", help="No progress.")]
Silent = Annotated[bool, Parameter(name="--quiet", negative="", help="No progress and no summary.")]
Verbose = Annotated[bool, Parameter(negative="", help="A summary with all figures.")]
Tensorboard = Annotated[bool, Parameter(negative="", help="Write TensorBoard's event files into the run.")]


@dataclass(frozen=True)
class DeviceFlags:
    """Flags of a training on several devices, and of several processes."""

    mesh: Annotated[
        str | None,
        Parameter(help="Devices that split the work, as in rows=4,units=2; docs/scale.md says how."),
    ] = None
    coordinator: Annotated[
        str | None, Parameter(help="HOST:PORT of the first of several processes, the same for all.")
    ] = None
    processes: Annotated[int | None, Parameter(help="The number of processes.")] = None
    process: Annotated[int | None, Parameter(help="Which one this is; the first is 0.")] = None
    cluster: Annotated[
        bool, Parameter(negative="", help="Find the other processes through Slurm, Open MPI or Kubernetes.")
    ] = False
    peer_timeout: Annotated[int, Parameter(help="Seconds to wait for a process before giving it up.")] = 60


Devices = Annotated[DeviceFlags, Parameter(name="*")]
ALONE = DeviceFlags()


def join_peers(devices: DeviceFlags, *, quiet: bool, json: bool) -> tuple[bool, bool]:
    """Meet the other processes, if there are any; all but the first are quiet and print nothing."""
    if replace(devices, mesh=None) == ALONE:
        return quiet, json
    given = (devices.coordinator, devices.processes, devices.process)
    if not devices.cluster and None in given:
        raise InputError(
            "expected --coordinator HOST:PORT, --processes N and --process I together, or --cluster; give all"
        )
    if devices.mesh is None:
        raise InputError("several processes need a mesh over the devices of all; add --mesh rows=N")
    if devices.peer_timeout < 1:
        raise InputError(f"expected a --peer-timeout of 1 second or more, got {devices.peer_timeout}")
    from natgrad.cli.supervised import note_met
    from natgrad.training.hosts import Hosts, connect
    from natgrad.training.mesh import is_first

    connect(Hosts(*given, devices.peer_timeout))
    note_met()
    return quiet or not is_first(), json and is_first()


def train(
    config: Path | None = None,
    *,
    out: Path | None = None,
    quiet: Silent = False,
    verbose: Verbose = False,
    tensorboard: Tensorboard = False,
    devices: Devices = ALONE,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> None:
    """Train a model and write its run folder; with no argument, the default model on embedded digits.

    Settings are the flags below. --model KIND --help lists those of one kind of model only.

    Parameters
    ----------
    config
        A TOML file of settings, for example RUN/config.toml to repeat a run.
    out
        The run folder; by default a fresh one under runs/.
    dry_run
        Print every setting with its value and the values that it may have, and stop.
    """
    check_config_file(config)
    tree = read_toml(config) if config else {}
    if "sweep" in tree or "seeds" in tree or isinstance(tree.get("method"), list):
        raise InputError(f"{config} is the file of a sweep; write natgrad sweep {config}")
    settings = resolve(values(GIVEN, tree), config)
    if dry_run:
        return _show_config(settings, json=json)
    from natgrad.records.folder import unused_folder
    from natgrad.training.run import run_config

    quiet, json = join_peers(devices, quiet=quiet, json=json)
    events = (out or unused_folder(settings)) if tensorboard else None
    with watched(settings, events, quiet=quiet) as watch:
        run = run_config(settings, out=events or out, watch=watch, final=True, mesh=devices.mesh)
    return print_summary(run, json=json, quiet=quiet, verbose=verbose)


def check_config_file(file: Path | None) -> None:
    """Refuse a data set or a kind of model in place of a config file, and say which flag takes it."""
    from natgrad.data.catalogue import CATALOGUE
    from natgrad.models.registry import kind_names

    flag = "--model" if str(file) in kind_names() else "--data"
    data = file is not None and (str(file) in CATALOGUE or file.suffix.lower() in (".npy", ".npz", ".csv"))
    if file is not None and not file.is_dir() and (data or (flag == "--model" and not file.exists())):
        raise InputError(f"{file} is not a config file; write natgrad train {flag} {file}")


def print_summary(run: Any, *, json: bool, quiet: bool, verbose: bool) -> None:
    """What a training says at its end."""
    from natgrad.cli.summary import summary_rows

    if json or verbose:
        return _print(run.summary, json=json, title=f"trained {run.folder}")
    if not quiet:
        _print(summary_rows(run.summary, run.config.model.kind), json=False, title=f"trained {run.folder}")
    return None


@contextmanager
def watched(settings: Any, events: Path | None, *, quiet: bool) -> Iterator[Any]:
    """A training's progress on the terminal and, where a folder is given, in event files."""
    from natgrad.cli.progress import ProgressBar

    with ProgressBar(settings, quiet=quiet) as bar:
        if events is None:
            yield bar
            return
        from natgrad.cli.tensorboard import watching

        with watching(bar, events) as watch:
            yield watch


def data_list(*, json: Json = False) -> None:
    """List the data sets, and where they are."""
    from natgrad.cli.data import list_sets

    sets = list_sets()
    _print({"sets": sets}, json=json, title="data sets", show=_table_of_sets)


def data_get(name: str, *, json: Json = False) -> None:
    """Download the files of a data set, if they are missing and can be downloaded.

    Parameters
    ----------
    name
        The name of a data set, as in `natgrad data list`.
    """
    from natgrad.cli.data import get

    _print(get(name), json=json, title=name)


def data_check(name: str, *, json: Json = False) -> None:
    """Check the files of a data set against their checksums, and read them.

    Parameters
    ----------
    name
        The name of a data set, as in `natgrad data list`.
    """
    from natgrad.cli.data import check_set

    _print(check_set(name), json=json, title=name)


def _show_config(settings: Any, *, json: bool) -> None:
    from natgrad.cli.dry_run import annotated

    if json:
        _print(settings.model_dump(mode="json"), json=True, title="")
    else:
        print(annotated(settings), end="")


def _print(
    result: dict[str, Any], *, json: bool, title: str, show: Callable[[dict[str, Any]], None] | None = None
) -> None:
    """One JSON line for machines, a table for people."""
    if json:
        from natgrad.records.folder import json_line

        print(json_line(result))
    else:
        from natgrad.cli.tables import record_printer

        (show or record_printer(title))(result)
    sys.stdout.flush()


def _table_of_sets(result: dict[str, Any]) -> None:
    from natgrad.cli.tables import print_rows

    shown = ("name", "visible", "image_shape", "rows", "where")
    short = [{key: found[key] for key in shown} for found in result["sets"]]
    print_rows([found | _written(found) for found in short])
    print("rows: train/valid/test; descriptions and more: natgrad data list --json")


def _written(found: dict[str, Any]) -> dict[str, str | None]:
    """Numbers that belong together, in few letters."""
    rows, shape = found["rows"] or {}, found["image_shape"] or ()
    return {
        "image_shape": " x ".join(map(str, shape)) or None,
        "rows": "/".join(map(str, rows.values())) or None,
    }
