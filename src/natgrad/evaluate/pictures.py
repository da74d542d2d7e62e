"""Pictures of what a model believes: grids of pixel means and of binary samples."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from natgrad.errors import InputError


def grid(images: Float[np.ndarray, "image pixel"], shape: tuple[int, int], columns: int) -> np.ndarray:
    """Images in rows of `columns`, one pixel apart, as one array of grey values in [0, 1]."""
    height, width = shape
    rows = -(-len(images) // columns)
    sheet = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1), 0.5)
    for number, image in enumerate(images):
        top, left = (number // columns) * (height + 1) + 1, (number % columns) * (width + 1) + 1
        sheet[top : top + height, left : left + width] = image.reshape(shape)
    return sheet


def save_samples(path: Path, means: np.ndarray, samples: np.ndarray, shape: tuple[int, int] | None) -> None:
    """Write a PNG: pixel means on the left, binary samples on the right."""
    from matplotlib.figure import Figure

    shape = shape or (1, means.shape[1])
    columns = max(1, round(np.sqrt(len(means) * shape[0] / shape[1])))
    figure = Figure(figsize=(10, 5.4), dpi=120, layout="constrained")
    for axes, images, title in zip(
        figure.subplots(1, 2), (means, samples), ("means", "samples"), strict=True
    ):
        axes.imshow(grid(images, shape, columns), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title)
        axes.set_axis_off()
    save_figure(path, figure)


def save_figure(path: Path, figure: Any) -> None:
    """Write a figure as PNG, whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        figure.savefig(temporary, format="png")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise InputError(
            f"cannot write the picture {path}: {error.strerror}; give a file you may write"
        ) from None
