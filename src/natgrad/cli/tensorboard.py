"""TensorBoard's event files beside the trace, for those who watch there; the trace stays the record.

`natgrad train --tensorboard`, then `tensorboard --logdir runs`. Needs `pip install natgrad[tb]`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from natgrad.errors import InputError
from natgrad.session import Watcher


class Events:
    """A watcher that writes every number it sees as a scalar, against steps, into a run's folder."""

    def __init__(self, folder: Path) -> None:
        if find_spec("tensorboardX") is None:
            raise InputError("--tensorboard needs the package tensorboardX; install it with natgrad[tb]")
        self.folder, self.writer = folder, None

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """The loss of late."""
        del total
        self._add({"loss_of_late": loss}, steps)

    def evaluated(self, row: dict[str, Any]) -> None:
        """A row of the trace: `generation.0.residual` becomes `generation/0/residual`."""
        numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
        self._add(numbers, row["step"])
        self._open().flush()

    def close(self) -> None:
        """Write what is left."""
        if self.writer is not None:
            self.writer.close()

    def _add(self, numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            self._open().add_scalar(name.replace(".", "/"), value, step)

    def _open(self) -> Any:
        """The writer, made at the first number: before that the run's folder must not exist."""
        from tensorboardX import SummaryWriter

        if self.writer is None:
            self.writer = SummaryWriter(str(self.folder))
        return self.writer


@contextmanager
def watching(progress: Watcher, folder: Path | None) -> Iterator[Watcher]:
    """The progress alone or, where a folder is given, with event files beside it."""
    if folder is None:
        yield progress
        return
    events = Events(folder)
    try:
        yield Together(progress, events)
    finally:
        events.close()


class Together:
    """Several watchers as one."""

    def __init__(self, *watchers: Watcher) -> None:
        self.watchers = watchers

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """Tell all."""
        for watcher in self.watchers:
            watcher.advanced(steps, total, loss)

    def evaluated(self, row: dict[str, Any]) -> None:
        """Tell all."""
        for watcher in self.watchers:
            watcher.evaluated(row)
