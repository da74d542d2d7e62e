"""Progress for people, on stderr: epoch, losses, the figures of the kind of model, seconds, time left."""

from types import TracebackType
from typing import Any

from rich import progress
from rich.console import Console

from natgrad.models.registry import Column, spec_of


class Progress:
    """A bar that moves with the chunks and a line per evaluation; silent when quiet or not on a terminal."""

    def __init__(self, settings: Any, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self.lines, self.epochs = not quiet, settings.training.epochs
        self.spec, self.headline = spec_of(settings.model.kind), ""
        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("eta"),
            progress.TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self.console = self.bar.console
        self.task = self.bar.add_task("compiling", total=None)

    def __enter__(self) -> "Progress":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """Move the bar."""
        epoch = -(-steps * self.epochs // total)
        text = f"epoch {epoch}/{self.epochs}  loss {loss:.3f}{self.headline}"
        self.bar.update(self.task, completed=steps, total=total, description=text)

    def evaluated(self, row: dict[str, Any]) -> None:
        """Print the row's figures, and keep the one that is reported for the bar."""
        named = {column.name: figure(column, row) for column in self.spec.columns if column.final}
        self.headline = named.get(self.spec.headline, "")
        if not self.lines:
            return
        loss = "      -" if row["train_loss"] is None else f"{row['train_loss']:7.3f}"
        refused = f"  {row['steps_refused']} steps refused (not finite)" if row.get("steps_refused") else ""
        self.console.print(
            f"epoch {row['epoch']:4d}  train loss {loss}  valid loss {row['valid_loss']:7.3f}"
            f"{''.join(named.values())}  {row['seconds']:7.1f} s{refused}",
            highlight=False,
        )


def figure(column: Column, row: dict[str, Any]) -> str:
    """A figure of a row with its name, or nothing where the row has none.

    >>> figure(Column("test_error", "test error", percent=True), {"test_error": 0.125})
    '  test error 12.50%'
    """
    value = row.get(column.name)
    if value is None:
        return ""
    form = ".2%" if column.percent else "8.4g" if column.log else "8.3f"
    return f"  {column.title} {value:{form}}"
