"""A training of several processes, on one computer or on many, over JAX's own distributed engine.

Every process runs the same steps on its own devices of one mesh. The first one writes the run; the others
work in a folder of their own that is removed at the end. Decisions that depend on a clock or on a signal are
taken together (`natgrad.training.mesh.agreed`). A process that dies is noticed by JAX, at once where a
connection breaks and otherwise by its missing heartbeats.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax

from natgrad import config
from natgrad.errors import InputError
from natgrad.records import folder
from natgrad.training.mesh import agreed, is_first
from natgrad.training.signals import Interrupted

_LOOPBACK = ("127.", "localhost", "[::1]")
_RUN_FILES = ("config.toml", "environment.json", "trace.jsonl")


class Hosts(NamedTuple):
    """Where the processes of a training meet, how many they are, which one this is, and how long to wait.

    Without a coordinator they are found as the cluster says: Slurm, Open MPI, Kubernetes.
    """

    coordinator: str | None
    processes: int | None
    process: int | None
    timeout: int


def connect(hosts: Hosts) -> None:
    """Meet the other processes. JAX ends this process if one of them is missing, or is lost later."""
    jax.config.update("jax_enable_preemption_service", False)  # which would take SIGTERM from us
    own = hosts.coordinator if (hosts.coordinator or "").startswith(_LOOPBACK) else None
    try:
        jax.distributed.initialize(
            hosts.coordinator,
            hosts.processes,
            hosts.process,
            initialization_timeout=hosts.timeout,
            heartbeat_timeout_seconds=hosts.timeout,
            coordinator_bind_address=own,
        )
    except (ValueError, TypeError) as error:
        raise InputError(
            f"cannot find the other processes of the training ({str(error).splitlines()[0]}); give "
            "--coordinator HOST:PORT --processes N --process I, or start it by Slurm, Open MPI or Kubernetes"
        ) from None


@contextmanager
def other_place(settings: config.RunSettings) -> Iterator[Path]:
    """The folder of a process that does not write the new run."""
    with _aside() as place:
        yield folder.create(place, settings)


@contextmanager
def old_place(place: Path) -> Iterator[Path]:
    """A run's folder, held for writing; for a process that does not write it, a copy of what it needs."""
    if is_first():
        with folder.held(place):
            yield place
        return
    with _aside() as copy:
        for name in _RUN_FILES:
            if (place / name).exists():
                shutil.copy(place / name, copy / name)
        shutil.copytree(place / "state", copy / "state", ignore=shutil.ignore_patterns("lock", ".*"))
        yield copy


@contextmanager
def _aside() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="natgrad-") as name:
        try:
            yield Path(name)
        except Interrupted as error:
            raise Interrupted("interrupted; the first process has saved the run", error.signal) from None


def check_same(session: Any) -> None:
    """Refuse to continue where processes have read different states of a run."""
    steps = int(session.state.steps)
    if agreed(steps) != steps or agreed(-steps) != -steps:
        raise InputError(
            f"this process has read step {steps} of the run, another one a different step; "
            "let all of them read the same folder"
        )
