"""Commands that measure and show a variational autoencoder; everything heavy is imported inside."""

from pathlib import Path
from typing import Any


def evaluate(
    run: Path,
    *,
    samples: int = 1000,
    bound_samples: int = 50,
    rows: int = 0,
    seed: int = 0,
    memory_mb: float = 256.0,
    mesh: str | None = None,
) -> dict[str, Any]:
    """Measure the log-likelihood of a run's test set by importance sampling, and bounds of it.

    Args:
        run: A run folder.
        samples: Importance samples per row.
        bound_samples: Samples of the importance-weighted bound that is shown beside.
        rows: How many test rows, chosen at random by the split's seed (0: all).
        seed: Decides the samples.
        memory_mb: Memory for the samples held at a time.
        mesh: Devices that split the rows, as in rows=4.
    """
    from natgrad.models.vae.measure import evaluated_run
    from natgrad.training.mesh import on_mesh

    counts = {"samples": samples, "bound_samples": bound_samples, "rows": rows}
    with on_mesh(mesh):
        return evaluated_run(run, seed=seed, memory_mb=memory_mb, **counts)


def show_fisher(run: Path, *, rows: int = 1000, seed: int = 0, out: Path | None = None) -> dict[str, Any]:
    """Look at the Fisher matrices of a run's networks: blocks, spectra, condition, memory of every solver.

    Args:
        run: A run folder.
        rows: How many training rows, or latent vectors of the prior, to estimate them from.
        seed: Decides the rows and the draws.
        out: The picture; by default fisher.png in the run folder.
    """
    from natgrad.models.vae.measure import pictured_networks

    return pictured_networks(run, rows=rows, seed=seed, out=out)
