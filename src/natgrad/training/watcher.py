"""A watcher of a training: it is called while a model is trained."""

from typing import Any, Protocol

from natgrad.errors import InputError


class Watcher(Protocol):
    """A watcher: called after every chunk and after every evaluation; one with a `close` also at the end."""

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """`steps` of `total` are done; the loss of late."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """A row was added to the trace."""


def check_watcher(watch: Any) -> None:
    """Refuse what cannot watch a training."""
    if watch is not None and not all(hasattr(watch, name) for name in ("advanced", "evaluated")):
        raise InputError(
            f"watch: expected an object with the methods advanced and evaluated, got {watch!r}; "
            "give one such as natgrad.WandbWatcher()"
        )


def end_watch(watch: Watcher | None) -> None:
    """Tell a watcher that the training is over, if it has a method `close`."""
    if close := getattr(watch, "close", None):
        close()


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
