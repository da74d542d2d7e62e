"""What a finished run's model makes of nothing and of given rows, as pictures: samples, completions.

For models with `sample`, `means`, `reconstruct` and `inpaint`.
"""

from pathlib import Path
from typing import Any

import numpy as np

from natgrad.data import load_settings
from natgrad.evaluate.completions import save_completions, save_reconstructions
from natgrad.evaluate.given_images import GivenImages
from natgrad.evaluate.pictures import picture_place, save_samples
from natgrad.training.run import load


def sample_run(
    run: str | Path, *, number: int = 64, seed: int = 0, out: str | Path | None = None
) -> dict[str, Any]:
    """Write a picture of pixel means and samples from a run's model."""
    found = load(run)
    picture = picture_place(out, found.folder / "drawn.png")
    means, samples = found.model.means(number, seed=seed), found.model.sample(number, seed=seed)
    save_samples(picture, means, samples, found.image_shape)
    return {"run": str(found.folder), "picture": str(picture), "number": number, "seed": seed}


def complete_run(
    run: str | Path,
    given: str,
    mask: str | None = None,
    *,
    number: int = 8,
    steps: int = 100,
    seed: int = 0,
    out: str | Path | None = None,
) -> dict[str, Any]:
    """Write a picture of given images and what a run's model makes of them.

    With a mask, its hidden pixels are drawn `number` times given the others; without one, the images are
    sent through the hidden units and back.
    """
    found = load(run)
    picture = picture_place(out, found.folder / "completions.png")
    dataset = load_settings(found.config.data)
    images = GivenImages(dataset, found.shape.visible, found.image_shape)
    rows = images.rows(given)
    result: dict[str, Any] = {"run": str(found.folder), "given": given, "images": len(rows)}
    if mask is None:
        means = found.model.reconstruct(rows, seed=seed)
        save_reconstructions(picture, rows, means, found.image_shape)
        return result | {"picture": str(picture), "seed": seed} | _compared(rows, means)
    hide = images.mask(mask, seed)
    done = found.model.inpaint(rows, hide, number=number, steps=steps, seed=seed)
    save_completions(picture, rows, hide, done, found.image_shape)
    result |= {"mask": mask, "hidden": int(hide.sum()), "picture": str(picture), "number": number}
    result |= {"steps": steps, "seed": seed, "moved": float(done.moved.mean())}
    return result | _compared(rows[:, None, hide], done.samples[..., hide])


def _compared(rows: np.ndarray, made: np.ndarray) -> dict[str, float]:
    """How near to the rows: the share of equal pixels if they are binary, or the mean squared difference."""
    if rows.dtype.kind == "f":
        return {"squared_error": float(((made - rows) ** 2).mean())}
    return {"pixels_agreed": float((made.round() == rows).mean())}
