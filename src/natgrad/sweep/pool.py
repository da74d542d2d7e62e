"""Workers, each on a core of its own; one that dies takes only its trial with it."""

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

_PATIENCE = 60.0  # seconds that a worker has to save its state when the sweep is stopped


class Trial(NamedTuple):
    """One training of a sweep.

    Attributes:
        name: that of its folder; config: its complete config.
        candidate: its candidate's number; seed: its seed.
        shorter: the folder of the same training with fewer epochs, which it continues.
        evaluate: arguments of the kind's evaluation after the training, if one is wanted.
    """

    name: str
    config: dict[str, Any]
    candidate: int
    seed: int
    shorter: str | None = None
    evaluate: dict[str, Any] | None = None


class Ending(NamedTuple):
    """How a trial ended: what went wrong, if something did; what else is known of it.

    Attributes:
        error: why it failed; seconds: how long it took.
        evaluated: the evaluation of its model; warning: what a user should know of it.
    """

    error: str | None
    seconds: float | None = None
    evaluated: dict[str, Any] | None = None
    warning: str | None = None


class Pool:
    """Up to so many trainings side by side. To be used in a `with` statement."""

    def __init__(self, workers: int, folder: Path) -> None:
        self.folder = folder
        self.cores = [_core(number) for number in range(workers)]
        self.idle: list[tuple[int | None, subprocess.Popen[str] | None]] = [
            (core, None) for core in self.cores
        ]
        self.busy: dict[subprocess.Popen[str], tuple[int | None, Trial]] = {}
        self.selector = selectors.DefaultSelector()

    def __enter__(self) -> "Pool":
        self.log: IO[str] = (self.folder / "workers.log").open("a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        processes = [*self.busy, *(process for _, process in self.idle if process is not None)]
        for process in self.busy:
            process.terminate()  # the training saves its state
        for process in processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in processes:
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self.selector.close()
        self.log.close()

    @property
    def free(self) -> int:
        """How many more trials can be taken on."""
        return len(self.idle)

    def submit(self, trial: Trial) -> None:
        """Give a trial to an idle worker."""
        core, process = self.idle.pop()
        if process is None or process.poll() is not None:
            process = self._start(core)
        self.busy[process] = core, trial
        job: dict[str, Any] = {"folder": str(self.folder / trial.name), "config": trial.config}
        job["shorter"] = None if trial.shorter is None else str(self.folder / trial.shorter)
        job["evaluate"] = trial.evaluate
        if process.stdin is not None and process.stdout is not None:
            self.selector.register(process.stdout, selectors.EVENT_READ, process)
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()

    def finished(self, seconds: float | None = None) -> Iterator[tuple[Trial, Ending]]:
        """Wait for at least one trial to end, or for so many seconds."""
        for key, _ in self.selector.select(seconds):
            process = key.data
            self.selector.unregister(key.fileobj)
            core, trial = self.busy.pop(process)
            line = process.stdout.readline()
            if line.endswith("\n"):
                self.idle.append((core, process))
                answer = json.loads(line)
                yield trial, Ending(**{name: answer.get(name) for name in Ending._fields})
            else:
                code = process.wait()
                process.stdin.close()
                process.stdout.close()
                self.idle.append((core, None))
                yield trial, Ending(f"its process ended with code {code}; see {self.folder / 'workers.log'}")

    def _start(self, core: int | None) -> subprocess.Popen[str]:
        """A worker of its own session: a terminal's interrupt reaches the sweep, which stops its workers."""
        command = [sys.executable, "-m", "natgrad.sweep.worker", str(os.getpid())]
        command += [] if core is None else [str(core)]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            start_new_session=True,
        )


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _core(number: int) -> int | None:
    """The core of a worker, the last first; None where a process cannot choose."""
    return cores()[-1 - number % len(cores())] if hasattr(os, "sched_setaffinity") else None
