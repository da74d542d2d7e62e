"""What a sweep holds while it is at work: its folder, its record, and the signals that stop it."""

import fcntl
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

from natgrad.errors import InputError
from natgrad.training.signals import Interrupted


@contextmanager
def claimed(place: Path, record: Path | None) -> Iterator[IO[str]]:
    """The sweep's folder and its record of trials, held by this process alone; the open record."""
    with _held(place / "workers.log", place, "--out"):
        path = place / "trials.jsonl" if record is None else record
        where, flag = (place, "--out") if record is None else (record, "--record")
        with _held(path, where, flag) as stream:
            yield stream


@contextmanager
def joined(place: Path) -> Iterator[None]:
    """The sweep's folder, shared with other workers of the same sweep, but with no sweep that is alone."""
    with _held(place / "workers.log", place, "--out", fcntl.LOCK_SH | fcntl.LOCK_NB):
        yield


@contextmanager
def record_when_free(record: Path) -> Iterator[IO[str]]:
    """The open record, when the other workers have let go of it."""
    with _held(record, record, "--record", fcntl.LOCK_EX) as stream:
        yield stream


@contextmanager
def stoppable(place: Path) -> Iterator[None]:
    """An interrupt or a SIGTERM stops the workers, which save their states."""

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        raise Interrupted(f"interrupted; the same command continues {place}", number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _held(path: Path, where: Path, flag: str, how: int = fcntl.LOCK_EX | fcntl.LOCK_NB) -> Iterator[IO[str]]:
    """A file open for reading and appending, locked."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot write the sweep to {where}: {error.strerror}; give another {flag}"
        ) from None
    with stream:
        try:
            fcntl.flock(stream, how)
        except OSError:
            raise InputError(
                f"another sweep is running in {where}; wait for it, or give another {flag}"
            ) from None
        yield stream
