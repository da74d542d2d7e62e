"""Commands that measure and show a trained Helmholtz machine; everything heavy is imported inside."""

from pathlib import Path
from typing import Any

from natgrad.errors import InputError

_DREAMS, COMPLETIONS = 64, 8


def evaluate(
    run: Path, *, samples: int = 1000, rows: int = 0, seed: int = 0, memory_mb: float = 256.0
) -> dict[str, Any]:
    """Measure the log-likelihood of a run's model on its test set.

    Args:
        run: A run folder.
        samples: Importance samples per row.
        rows: How many test rows, chosen at random by the split's seed (0: all).
        seed: Decides the samples.
        memory_mb: Memory for the samples held at a time.
    """
    from natgrad.models.helmholtz.measure import evaluate_run

    return evaluate_run(run, samples=samples, rows=rows, seed=seed, memory_mb=memory_mb)


def sample(
    run: Path,
    *,
    number: int | None = None,
    given: str | None = None,
    mask: str | None = None,
    steps: int = 100,
    seed: int = 0,
    out: Path | None = None,
) -> dict[str, Any]:
    """Draw from a run's model: dreams, or completions of a given image, as a PNG.

    With --given and --mask the hidden pixels are drawn given the others; with --given alone the image is
    reconstructed from its hidden units.

    Args:
        run: A run folder.
        number: How many dreams (64) or completions of an image (8).
        given: test:12 (or test:3,5,8; train:, valid:), a .npy or a .png file; grey values are rounded.
        mask: What is hidden: left, right, top, bottom, center, half (of the pixels, at random), or a file
            with 1 (white) where hidden.
        steps: Steps of every completion's chain.
        seed: Decides the samples.
        out: The picture; by default samples.png or completions.png in the run folder.
    """
    if mask is not None and given is None:
        raise InputError(
            "--mask needs --given: expected the image whose part is hidden, such as --given test:0"
        )
    from natgrad.models.helmholtz.measure import complete_run, sample_run

    if given is None:
        return sample_run(run, number=_DREAMS if number is None else number, seed=seed, out=out)
    chosen = COMPLETIONS if number is None else number
    return complete_run(run, given, mask, number=chosen, steps=steps, seed=seed, out=out)


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
