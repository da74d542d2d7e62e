"""A process that trains one trial after the other, on a core of its own: JSON lines in, JSON lines out.

It is started afresh (never forked, since JAX has threads), stays for many trials, and ends with its
parent: when the pipe closes, or, in the middle of a trial, when it finds itself orphaned.
"""

import json
import os
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any


class Orphan:
    """A watcher of a training that stops it when the sweep has gone."""

    def __init__(self) -> None:
        self.parent = os.getppid()

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """Look after every chunk."""
        del steps, total, loss
        if os.getppid() != self.parent:
            raise SystemExit(1)

    def evaluated(self, row: dict[str, Any]) -> None:
        """Nothing to do: the row is in the trace."""


def train_trial(folder: Path, settings: dict[str, Any]) -> None:
    """Train a trial, or continue it where it was left."""
    from natgrad import config
    from natgrad.training import run as training

    if (folder / "config.toml").exists():
        training.resume_run(folder, watch=Orphan())
        return
    shutil.rmtree(folder, ignore_errors=True)  # killed before its config was written
    training.run_config(config.validate(settings), out=folder, watch=Orphan())


def attempt(folder: str, settings: dict[str, Any]) -> str | None:
    """Train a trial; what went wrong, if something did, in one sentence."""
    from natgrad.errors import InputError

    try:
        train_trial(Path(folder), settings)
    except InputError as error:
        return str(error)
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def _serve() -> None:
    """Serve until the pipe closes. Whatever a library prints goes to stderr, not among the answers."""
    if len(sys.argv) > 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(sys.argv[1])})  # before JAX counts the cores
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        job = json.loads(line)
        began = time.perf_counter()
        error = attempt(job["folder"], job["config"])
        answers.write(json.dumps({"error": error, "seconds": round(time.perf_counter() - began, 1)}) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
