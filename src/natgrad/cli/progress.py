"""Progress for people, on stderr: epoch, loss, likelihood, seconds, time left."""

from types import TracebackType
from typing import Any

from rich import progress
from rich.console import Console


class Progress:
    """A bar that moves with the chunks and a line per evaluation; silent when quiet or not on a terminal."""

    def __init__(self, *, epochs: int, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self.lines, self.epochs = not quiet, epochs
        self.likelihood = ""
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
        text = f"epoch {epoch}/{self.epochs}  loss {loss:.3f}{self.likelihood}"
        self.bar.update(self.task, completed=steps, total=total, description=text)

    def evaluated(self, row: dict[str, Any]) -> None:
        """Print the row's figures, and keep the likelihood for the bar."""
        wrong = row.get("test_error")
        self.likelihood = f"  LL {row['test_ll']:.2f}" if wrong is None else f"  error {wrong:.2%}"
        if not self.lines:
            return
        loss = "      -" if row["train_loss"] is None else f"{row['train_loss']:7.3f}"
        exact = f"  KL {row['kl']:.4f}" if "kl" in row else ""
        exact += "" if wrong is None else f"  test error {wrong:.2%}"
        refused = f"  {row['steps_refused']} steps refused (not finite)" if row.get("steps_refused") else ""
        self.console.print(
            f"epoch {row['epoch']:4d}  train loss {loss}  valid loss {row['valid_loss']:7.3f}  "
            f"test LL {row['test_ll']:8.3f}  {row['seconds']:7.1f} s{exact}{refused}",
            highlight=False,
        )
