"""Signals that ask a training to stop: the first is noted, a second stops at once.

Python runs a handler only between two of its own instructions, never in the middle of a compiled chunk: the
first signal only notes itself, and the session looks after every chunk. The second must not wait for that. On
a command line a thread of its own is told of signals as they come (Python writes their numbers into a pipe
from within the system's handler) and ends the process, whatever the main thread is doing.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SHOW_CURSOR = b"\x1b[?25h\n"  # a progress bar hides it


class Interrupted(KeyboardInterrupt):
    """A training was asked to stop, and has saved its state."""

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.signal = number


class Stop:
    """The signal that came, if one did."""

    number: int | None = None


@contextmanager
def noted(*, final: bool = False) -> Iterator[Stop]:
    """Note the first of SIGINT and SIGTERM; a second ends the process if `final`, and is Python's own if not.

    Only the main thread of a process may do so; in another nothing is noted and nothing changes.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        stop.number = number
        if not final:
            restore()

    def restore() -> None:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)

    with _ending_at_the_second() if final else nullcontext():
        try:
            for number in SIGNALS:
                signal.signal(number, note)
            yield stop
        finally:
            restore()


@contextmanager
def _ending_at_the_second() -> Iterator[None]:
    """End the process at the second signal, from a thread that waits for nothing else."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    thread = threading.Thread(target=_count, args=(reader,), daemon=True)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)  # which ends the thread
        thread.join()
        os.close(reader)


def _count(reader: int) -> None:
    signals = 0
    while number := os.read(reader, 1):
        signals += number[0] in SIGNALS
        if signals == 2:
            if os.isatty(2):
                os.write(2, SHOW_CURSOR)
            os._exit(128 + number[0])
