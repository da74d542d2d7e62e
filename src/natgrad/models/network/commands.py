"""Commands that measure a trained network; everything heavy is imported inside."""

from pathlib import Path
from typing import Any

from natgrad.errors import check_counts


def evaluate(run: Path, *, rows: int = 0) -> dict[str, Any]:
    """Measure the log-likelihood of targets, and the error, of a run's network on its held-out rows.

    Args:
        run: A run folder.
        rows: How many rows of each split, chosen at random by the split's seed (0: all).
    """
    from natgrad.data import load_settings
    from natgrad.models.network.kind import held_out_figures
    from natgrad.training.run import load

    check_counts(0, rows=rows)
    found = load(run)
    dataset = load_settings(found.config.data)
    number = len(dataset.test)
    figures = held_out_figures(found.config, dataset, found.model.parameters, rows=rows)
    return {"run": str(found.folder)} | figures | {"rows": min(rows or number, number)}
