"""Commands that measure a trained network; everything heavy is imported inside."""

from pathlib import Path
from typing import Any


def evaluate(run: Path, *, rows: int = 0) -> dict[str, Any]:
    """Measure the log-likelihood of targets, and the error, of a run's network on its held-out rows.

    Args:
        run: A run folder.
        rows: How many rows of each split, chosen at random by the split's seed (0: all).
    """
    from natgrad.models.helmholtz.measure import evaluate_run

    return evaluate_run(run, rows=rows)
