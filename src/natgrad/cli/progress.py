"""Progress for people, on stderr: epoch, losses, the figures of the kind of model, seconds, time left."""

from types import TracebackType
from typing import Any

from rich import progress
from rich.console import Console

from natgrad.report.columns import number, shown_value, validation_figures

WIDTH = 80  # of a terminal's lines: figures that do not fit are left out


class ProgressBar:
    """A bar that moves with the chunks and a line per evaluation; silent when quiet or not on a terminal."""

    def __init__(self, settings: Any, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self.lines, self.epochs = not quiet, settings.training.epochs
        self.kind, self.headline, self.at = settings.model.kind, "", ""
        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=10),
            progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("eta"),
            progress.TimeRemainingColumn(),
            console=console,
            disable=quiet or not (console.is_terminal or console.is_jupyter),
        )
        self.console = self.bar.console
        self.task = self.bar.add_task("compiling", total=None)

    def __enter__(self) -> "ProgressBar":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.update(self.task, visible=bool(self.at))  # what was refused or finished leaves no bar
        self.bar.stop()

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """Move the bar."""
        epoch = -(-steps * self.epochs // total)
        self.at = f"epoch {epoch}/{self.epochs}  loss {number(loss)}"
        self.bar.update(self.task, completed=steps, total=total, description=self.at + self.headline)

    def evaluated(self, row: dict[str, Any]) -> None:
        """Print the row's figures on validation data, and keep the first for the bar."""
        shown = [
            f"  {column.title} {shown_value(column, row)}" for column in validation_figures(self.kind, row)
        ]
        self.headline = next(iter(shown), "")
        if self.at:
            self.bar.update(self.task, description=self.at + self.headline)
        if not self.lines:
            return
        losses = (f"{name} loss {_loss(row.get(f'{name}_loss')):>7}" for name in ("train", "valid"))
        refused = f"  {row['steps_refused']} steps refused" if row.get("steps_refused") else ""
        start, end = f"epoch {row['epoch']:4d}  {'  '.join(losses)}", f"  {row['seconds']:6.1f} s{refused}"
        while shown and len(start + "".join(shown) + end) > WIDTH:
            shown.pop()
        self.console.print(start + "".join(shown) + end, highlight=False, markup=False, soft_wrap=True)


def _loss(value: float | None) -> str:
    return "-" if value is None else number(value)
