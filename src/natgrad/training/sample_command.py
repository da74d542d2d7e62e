"""The command `sample` of every kind whose model has what `natgrad.training.sampling` asks for; no JAX."""

from pathlib import Path
from typing import Any

from natgrad.errors import InputError

_SAMPLES, _COMPLETIONS = 64, 8


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
    """Draw from a run's model: samples, or completions of a given image, as a PNG.

    With --given and --mask the hidden pixels are drawn given the others; with --given alone the image is
    reconstructed from what the model recognizes in it.

    Args:
        run: A run folder.
        number: How many samples (64) or completions of an image (8).
        given: test:12 (or test:3,5,8; train:, valid:), a .npy or a .png file; gray values are rounded unless
            the data are real.
        mask: What is hidden: left, right, top, bottom, center, half (of the pixels, at random), or a file
            with 1 (white) where hidden.
        steps: Steps of every completion's chain.
        seed: Decides the samples.
        out: The picture; by default drawn.png or completions.png in the run folder.
    """
    if mask is not None and given is None:
        raise InputError(
            "--mask needs --given: expected the image whose part is hidden, such as --given test:0"
        )
    from natgrad.training.sampling import complete_run, sample_run

    if given is None:
        return sample_run(run, number=_SAMPLES if number is None else number, seed=seed, out=out)
    chosen = _COMPLETIONS if number is None else number
    return complete_run(run, given, mask, number=chosen, steps=steps, seed=seed, out=out)
