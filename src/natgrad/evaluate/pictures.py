"""Pictures as files: grids of images, and sheets of them side by side."""

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from natgrad.errors import InputError
from natgrad.writing import write

if TYPE_CHECKING:  # whoever only saves a figure needs no JAX
    from natgrad.core import Sheet


def grid(images: Float[np.ndarray, "image pixel"], shape: tuple[int, int], columns: int) -> np.ndarray:
    """Images in rows of `columns`, one pixel apart, as one array of grey values in [0, 1]."""
    height, width = shape
    rows = -(-len(images) // columns)
    sheet = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1), 0.5)
    for number, image in enumerate(images):
        top, left = (number // columns) * (height + 1) + 1, (number % columns) * (width + 1) + 1
        sheet[top : top + height, left : left + width] = image.reshape(shape)
    return sheet


def save_sheets(path: Path, sheets: "Mapping[str, Sheet]") -> None:
    """Write a PNG with all sheets side by side, each under its caption; no file where there is no sheet."""
    from matplotlib.figure import Figure

    if not sheets:
        return
    figure = Figure(figsize=(5 * len(sheets), 5.4), dpi=120, layout="constrained")
    places = figure.subplots(1, len(sheets), squeeze=False)[0]
    for axes, (title, sheet) in zip(places, sheets.items(), strict=True):
        axes.imshow(_laid_out(sheet), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title)
        axes.set_axis_off()
    save_figure(path, figure)


def save_samples(path: Path, means: np.ndarray, samples: np.ndarray, shape: tuple[int, int] | None) -> None:
    """Write a PNG: pixel means on the left, binary samples on the right."""
    from natgrad.core import Sheet

    save_sheets(path, {"means": Sheet(means, shape), "samples": Sheet(samples, shape)})


def _laid_out(sheet: "Sheet") -> np.ndarray:
    """A sheet's pictures as one array, by default about square; rows that are not images are lines."""
    rows = np.asarray(sheet.rows)
    shape = sheet.image_shape or (1, rows.shape[1])
    square = max(1, round(np.sqrt(len(rows) * shape[0] / shape[1])))
    return grid(rows, shape, sheet.columns or square)


def picture_place(out: str | Path | None, usual: Path) -> Path:
    """Where a picture goes, checked before the work that it takes: as asked for, or the usual place."""
    path = Path(out) if out is not None else usual
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        why = "it is a folder" if path.is_dir() else f"{folder} is not a folder you may write"
        raise InputError(f"cannot write the picture {path}: {why}; give another --out")
    return path


def save_figure(path: Path, figure: Any) -> None:
    """Write a figure, whole or not at all: in the format of the file's name, or else as PNG."""
    content, ending = io.BytesIO(), path.suffix.removeprefix(".").lower()
    known = ending in figure.canvas.get_supported_filetypes()
    figure.savefig(content, format=ending if known else "png")
    try:
        write(path, content.getvalue())
    except OSError as error:
        raise InputError(
            f"cannot write the picture {path}: {error.strerror}; give a file you may write"
        ) from None
