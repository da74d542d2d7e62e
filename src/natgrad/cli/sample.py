"""`natgrad sample`: dreams of a run's model, completions of images, reconstructions."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from natgrad.cli.commands import Json, Number, _print
from natgrad.cli.dotted import whole
from natgrad.errors import InputError

DREAMS, COMPLETIONS = 64, 8


def sample(
    run: Path,
    *,
    number: Annotated[int | None, Parameter(converter=whole)] = None,
    given: str | None = None,
    mask: str | None = None,
    steps: Number = 100,
    seed: Number = 0,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Draw from a run's model: dreams, or completions of a given image, as a PNG.

    With --given and --mask the hidden pixels are drawn given the others; with --given alone the image is
    reconstructed from its hidden units.

    Parameters
    ----------
    run
        A run folder.
    number
        How many dreams (64) or completions of an image (8).
    given
        test:12 (or test:3,5,8; train:, valid:), a .npy or a .png file; grey values are rounded.
    mask
        What is hidden: left, right, top, bottom, center, half (of the pixels, at random), or a file with 1
        (white) where hidden.
    steps
        Steps of every completion's chain.
    seed
        Decides the samples.
    out
        The picture; by default samples.png or completions.png in the run folder.
    """
    if mask is not None and given is None:
        raise InputError(
            "--mask needs --given: expected the image whose part is hidden, such as --given test:0"
        )
    from natgrad.models.helmholtz.measure import complete_run, sample_run

    if given is None:
        result = sample_run(run, number=DREAMS if number is None else number, seed=seed, out=out)
    else:
        chosen = COMPLETIONS if number is None else number
        result = complete_run(run, given, mask, number=chosen, steps=steps, seed=seed, out=out)
    return _print(result, json=json, title=str(run))
