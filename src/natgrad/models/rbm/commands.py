"""Commands that measure and show a Boltzmann machine; everything heavy is imported inside."""

from pathlib import Path
from typing import Any


def evaluate(
    run: Path,
    *,
    data: str | None = None,
    rows: int = 0,
    chains: int = 100,
    temperatures: int = 10_000,
    turns: int = 1000,
    seed: int = 0,
    mesh: str | None = None,
) -> dict[str, Any]:
    """Measure the log-likelihood of a machine on held-out rows, exactly or by annealed importance sampling.

    A machine with at most 22 units on its smaller side is enumerated. Of others log Z is estimated from both
    ends, forward and in reverse.

    Args:
        run: A run folder, or with --model rbm a .npz file of weights, visible_bias and hidden_bias.
        data: The data set, for a file; by default that of the run.
        rows: How many rows of each split, chosen at random by the split's seed (0: all).
        chains: Chains of annealing.
        temperatures: Temperatures of annealing.
        turns: Turns of Gibbs sampling before the reverse chains start.
        seed: Decides the samples.
        mesh: Devices that split the chains, as in rows=4.
    """
    from natgrad.models.rbm.measure import evaluate_machine
    from natgrad.training.mesh import on_mesh

    counts = {"chains": chains, "temperatures": temperatures, "turns": turns}
    with on_mesh(mesh):
        return evaluate_machine(run, data, rows=rows, seed=seed, **counts)


def sample(
    run: Path, *, number: int = 64, turns: int = 1000, seed: int = 0, out: Path | None = None
) -> dict[str, Any]:
    """Draw from a run's machine: the ends of chains, as a PNG.

    Args:
        run: A run folder.
        number: How many chains; they start where those of the training ended.
        turns: Turns of Gibbs sampling.
        seed: Decides the samples.
        out: The picture; by default drawn.png in the run folder.
    """
    from natgrad.models.rbm.measure import sampled_machine

    return sampled_machine(run, number=number, turns=turns, seed=seed, out=out)


def show_fisher(run: Path, *, number: int = 1000, seed: int = 0, out: Path | None = None) -> dict[str, Any]:
    """Look at the Fisher matrix of a run's machine: moments, the matrix, its inverse, its spectrum.

    Args:
        run: A run folder.
        number: How many samples to estimate it from where the machine is too large for an exact one.
        seed: Decides the samples.
        out: The picture; by default fisher.png in the run folder.
    """
    from natgrad.models.rbm.measure import pictured_fisher

    return pictured_fisher(run, number=number, seed=seed, out=out)
