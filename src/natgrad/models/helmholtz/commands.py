"""Commands that measure and show a trained Helmholtz machine; everything heavy is imported inside."""

from pathlib import Path
from typing import Any


def evaluate(
    run: Path,
    *,
    samples: int = 1000,
    rows: int = 0,
    seed: int = 0,
    memory_mb: float = 256.0,
    mesh: str | None = None,
) -> dict[str, Any]:
    """Measure the log-likelihood of a run's model on its test set.

    Args:
        run: A run folder.
        samples: Importance samples per row.
        rows: How many test rows, chosen at random by the split's seed (0: all).
        seed: Decides the samples.
        memory_mb: Memory for the samples held at a time.
        mesh: Devices that split the rows, as in rows=4.
    """
    from natgrad.models.helmholtz.measure import evaluate_run
    from natgrad.training.mesh import on_mesh

    with on_mesh(mesh):
        return evaluate_run(run, samples=samples, rows=rows, seed=seed, memory_mb=memory_mb)


def show_fisher(run: Path, *, rows: int = 2000, seed: int = 0, out: Path | None = None) -> dict[str, Any]:
    """Look at the Fisher matrix of a run's model: blocks, spectra, condition, memory of every solver.

    Args:
        run: A run folder.
        rows: How many dreams to estimate it from.
        seed: Decides the dreams.
        out: The picture; by default fisher.png in the run folder.
    """
    from natgrad.models.helmholtz.measure import fisher_run

    return fisher_run(run, rows=rows, seed=seed, out=out)
