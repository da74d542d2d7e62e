"""Signals that ask a training to stop: the first is noted, a second stops at once.

Python runs a handler only between two of its own instructions, never in the middle of a compiled
chunk. The first signal therefore puts back what was there before (or the system's own action, which
ends the process whatever it is doing), and only notes itself: the session looks after every chunk.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
    """Note the first of SIGINT and SIGTERM; if `final`, the system's own action meets a second.

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
        restore(dict.fromkeys(SIGNALS, signal.SIG_DFL) if final else before)

    def restore(handlers: dict[int, Any]) -> None:
        for each, handler in handlers.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)

    try:
        for number in SIGNALS:
            signal.signal(number, note)
        yield stop
    finally:
        restore(before)
