"""Trainings in Weights & Biases and in MLflow: a small watcher each, for whoever has the package installed.

    natgrad.train(data="digits", watch=natgrad.WandbWatcher(project="digits"))

Every row of the trace is logged as it is written, and the run ends with the training. Keyword arguments are
those of `wandb.init` and of `mlflow.start_run`.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from natgrad.errors import InputError


class WandbWatcher:
    """A watcher that logs to a run of Weights & Biases, which begins with the first row."""

    def __init__(self, **options: Any) -> None:
        self.package, self.options = _installed("wandb"), options
        self.run: Any = None

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """Nothing: rows are logged."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """Log a row of the trace."""
        if self.run is None:
            self.run = self.package.init(**self.options)
        self.run.log(_numbers(row), step=row["step"])

    def close(self) -> None:
        """End the run; another training with this watcher begins another."""
        if self.run is not None:
            self.run.finish()
            self.run = None


class MlflowWatcher:
    """A watcher that logs to the active run of MLflow, or to one that it begins with the first row."""

    def __init__(self, **options: Any) -> None:
        self.package, self.options, self.begun = _installed("mlflow"), options, False

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """Nothing: rows are logged."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """Log a row of the trace."""
        if self.package.active_run() is None:
            self.package.start_run(**self.options)
            self.begun = True
        self.package.log_metrics(_numbers(row), step=row["step"])

    def close(self) -> None:
        """End the run, if this watcher began it."""
        if self.begun:
            self.package.end_run()
            self.begun = False


def _installed(name: str) -> Any:
    if find_spec(name) is None:
        raise InputError(f"this watcher needs the package {name}; install it with pip install {name}")
    return import_module(name)


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    """The numbers of a row: `part.0.residual` becomes `part/0/residual`."""
    return {
        name.replace(".", "/"): float(value) for name, value in row.items() if isinstance(value, int | float)
    }
