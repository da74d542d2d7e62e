"""TensorBoard's event files beside the trace, for those who watch there; the trace stays the record.

`natgrad train --tensorboard`, then `tensorboard --logdir runs`. Needs `pip install tensorboardX`. Events are
written as they come, without another thread: a training never waits for a queue, and a kill loses none.
A disk that refuses them ends the event files, not the training.
"""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from natgrad.errors import InputError
from natgrad.training.watcher import Together, Watcher

_log = logging.getLogger(__name__)


class Events:
    """A watcher that writes every number it sees as a scalar, against steps, into a run's folder."""

    def __init__(self, folder: Path) -> None:
        if find_spec("tensorboardX") is None:
            raise InputError(
                "--tensorboard needs the package tensorboardX; install it with pip install tensorboardX"
            )
        self.folder, self.writer, self.refused = folder, None, False

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """The loss of late."""
        del total
        self._add({"loss_of_late": loss}, steps)

    def evaluated(self, row: dict[str, Any]) -> None:
        """A row of the trace: `part.0.residual` becomes `part/0/residual`."""
        numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
        self._add(numbers, row["step"])

    def close(self) -> None:
        """Close the file, if there is one."""
        if self.writer is not None and not self.refused:
            self.writer.close()

    def _add(self, numbers: dict[str, float], step: int) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        named = {name.replace(".", "/"): float(value) for name, value in numbers.items()}
        values = [Summary.Value(tag=name, simple_value=value) for name, value in named.items()]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        try:
            if not self.refused:
                self._open().write_event(event)
                self._open().flush()
        except OSError as error:
            self.refused = True
            _log.warning("no more event files in %s: %s", self.folder, error.strerror or error)

    def _open(self) -> Any:
        """The file, made at the first number: before that the run's folder must not exist.

        Its name has the second and, since a run may be resumed within one, the process.
        """
        from tensorboardX.event_file_writer import EventsWriter

        if self.writer is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.writer = EventsWriter(str(self.folder / "events"), f".{os.getpid()}")
        return self.writer


@contextmanager
def watching(progress: Watcher, folder: Path) -> Iterator[Watcher]:
    """The progress, with event files in a folder beside it."""
    events = Events(folder)
    try:
        yield Together(progress, events)
    finally:
        events.close()
