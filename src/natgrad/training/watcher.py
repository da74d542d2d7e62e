"""Someone who looks on while a model is trained."""

from typing import Any, Protocol


class Watcher(Protocol):
    """Someone who looks on: called after every chunk and after every evaluation."""

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """`steps` of `total` are done; the loss of late."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """A row was added to the trace."""
