"""A process that trains one trial after the other, on a core of its own: JSON lines in, JSON lines out.

It is started afresh (never forked, since JAX has threads), stays for many trials, and ends with its
parent: when the pipe closes, or, in the middle of a trial, at once: a training may be killed at any moment,
and whoever starts the sweep again should not find its runs held.
"""

import json
import os
import shutil
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from natgrad.records.folder import json_line


def train_trial(folder: Path, settings: dict[str, Any], shorter: Path | None = None) -> dict[str, Any]:
    """Train a trial, or continue it where it or a shorter training of the same settings was left.

    Returns the summary of its run.
    """
    from natgrad import config
    from natgrad.training import run as training

    if not (folder / "config.toml").exists():
        shutil.rmtree(folder, ignore_errors=True)  # killed before its config was written
        if shorter is None:
            return training.run_config(config.validate(settings), out=folder).summary
        _copied(shorter, folder)
    return training.resume_run(folder, epochs=settings["training"]["epochs"]).summary


def _copied(folder: Path, copy: Path) -> None:
    """A copy of a run that is there as a whole or not at all."""
    part = copy.with_name(f".{copy.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(folder, part)
    part.rename(copy)


def evaluation_of(folder: Path, kind: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What the kind's own command says of a trained model."""
    from natgrad.models import registry

    evaluate: Any = registry.resolve_reference(registry.spec_of(kind).commands["evaluate"])
    return {name: value for name, value in evaluate(folder, **arguments).items() if name != "run"}


def attempt(job: dict[str, Any]) -> dict[str, Any]:
    """Train a trial, and evaluate it if asked to; what went wrong, if something did, in one sentence.

    A record is committed and read elsewhere, so that the sentence has the folder's name, not where it is.
    """
    from natgrad.errors import InputError

    folder, settings = Path(job["folder"]), job["config"]
    shorter = None if job.get("shorter") is None else Path(job["shorter"])
    try:
        found = {"error": None, "warning": train_trial(folder, settings, shorter).get("warning")}
        if job.get("evaluate") is not None:
            found["evaluated"] = evaluation_of(folder, settings["model"]["kind"], job["evaluate"])
        return found
    except InputError as error:
        return {"error": str(error).replace(str(folder), folder.name)}
    except Exception as error:
        traceback.print_exc()
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        return {"error": said.replace(str(folder), folder.name)}


def _end_with(parent: int) -> None:
    """End this process, whatever it is doing, when its parent has gone."""
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(1)


def _serve(parent: int, core: int | None = None) -> None:
    """Serve until the pipe closes. Whatever a library prints goes to stderr, not among the answers."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if core is not None:
        os.sched_setaffinity(0, {core})  # before JAX counts the cores
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        job = json.loads(line)
        began = time.perf_counter()
        answer = attempt(job) | {"seconds": round(time.perf_counter() - began, 1)}
        answers.write(json_line(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:]))
