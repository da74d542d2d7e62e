"""A process of a training that has several: watched from outside, since JAX ends it when another is lost.

The command starts itself once more and waits. What JAX's engine prints on its own goes to a file, which is
shown only where it is news. When the command ends, however that ends, so does the process it started.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any

from natgrad.cli import streams

LOST = 75  # the exit code of the inner process when it has lost another one
_INNER = "NATGRAD_INNER"  # the numbers of its log, of the pipe to tell on, of the pipe to listen on
_SIGNS = ("gloo", "coordination", "heartbeat", "distributed", "unavailable", "deadline", "connection", "nccl")
_CODE = "from natgrad.cli.main import main; main()"
_told: list[int] = []


def one_of_several(tokens: list[str], command: Callable[[list[str]], int]) -> int:
    """The exit code of a command that is one process of several: watched here, run inside another one."""
    if _INNER not in os.environ:
        return supervise(tokens)
    enter()
    code = command(tokens)
    leave(code)
    return code


def supervise(tokens: Sequence[str]) -> int:
    """Run the command inside another process, and say in a sentence what JAX says by an abort."""
    told, tell = os.pipe()
    listen, alive = os.pipe()
    with tempfile.TemporaryFile() as log:
        numbers = (log.fileno(), tell, listen)
        inner = subprocess.Popen(
            [sys.executable, "-c", _CODE, *tokens],
            env=os.environ | {_INNER: ",".join(map(str, numbers))},
            pass_fds=numbers,
            start_new_session=True,  # a signal of the terminal comes once, from here
        )
        os.close(tell)
        os.close(listen)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda which, frame: inner.send_signal(which))
        code = inner.wait()
        os.close(alive)
        met = bool(os.read(told, 1))
        log.seek(0)
        return _judged(code, met, log.read().decode(errors="replace"), to_json="--json" in tokens)


def _judged(code: int, met: bool, log: str, *, to_json: bool) -> int:
    """The exit code, after a sentence where the inner process could not say one."""
    if code >= 0 and code != LOST:
        return code
    if code == -signal.SIGABRT and not _is_of_others(log):
        sys.stderr.write(log)
        return 128 + signal.SIGABRT
    if code not in (LOST, -signal.SIGABRT):
        return 128 - code
    sentence = (
        "another process of the training has ended or cannot be reached any more; what was saved is whole: "
        "continue with `natgrad resume RUN`, with as many processes or fewer"
        if met
        else "not all processes of the training came together in time; start them all, give each the same "
        "--coordinator and --processes, and see that its port can be reached"
    )
    streams.complain(sentence, to_json=to_json)
    return 2


def enter() -> None:
    """In the inner process: keep the streams for ourselves, and end when the outer one does."""
    log, tell, listen = map(int, os.environ[_INNER].split(","))
    _told.append(tell)
    for name, number in (("stdout", 1), ("stderr", 2)):
        setattr(sys, name, open(os.dup(number), "w", encoding="utf-8", buffering=1))  # noqa: SIM115
        os.dup2(log, number)
    threading.Thread(target=_end_with, args=(listen,), daemon=True).start()


def note_met() -> None:
    """Tell the outer process that all have come together."""
    for number in _told:
        os.write(number, b"1")


def leave(code: int) -> None:
    """End the inner process at once where it failed: to wait for others that will not come helps nobody."""
    if _told and code:
        streams.settle()
        os._exit(code)


def is_lost(error: Exception) -> bool:
    """Whether an error of the inner process is what JAX raises when another process is gone."""
    return bool(_told) and _is_of_others(f"{type(error).__name__} {error}")


def _is_of_others(text: str) -> bool:
    return any(sign in text.lower() for sign in _SIGNS)


def _end_with(listen: Any) -> None:
    os.read(listen, 1)
    os._exit(1)
