"""Completions of rows whose part is hidden, and pictures of them and of reconstructions."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from natgrad.errors import InputError
from natgrad.evaluate.pictures import grid, save_figure

HIDDEN = (0.45, 0.6, 0.8)  # the color of a pixel that is not known

_Shape = tuple[int, int] | None


class Completions(NamedTuple):
    """Completions of rows: `samples` and the means they were drawn from, [row, number, visible].

    `moved` is the share of steps in which the hidden state of a row's chains changed.
    """

    samples: np.ndarray
    means: np.ndarray
    moved: np.ndarray


def checked_mask(mask: np.ndarray, rows: int, visible: int) -> NDArray[np.bool_]:
    """A mask for every row, [row, visible], from one for all or one for each; true where hidden.

    Masks may have the shape of an image.
    """
    hide = np.asarray(mask)
    if hide.ndim == 2 and hide.size == visible and hide.shape != (rows, visible):
        hide = hide.reshape(visible)
    elif hide.ndim == 3 and hide.shape[0] == rows and hide.size == rows * visible:
        hide = hide.reshape(rows, visible)
    if hide.shape not in ((visible,), (rows, visible)) or not np.isin(hide, (0, 1)).all():
        raise InputError(
            f"expected a mask of {visible} values, true where a pixel is hidden, "
            f"got shape {hide.shape} of {hide.dtype}; give one mask for all rows or one for each"
        )
    if not hide.any():
        raise InputError("expected a mask that hides at least one pixel, got none; there is nothing to draw")
    return np.broadcast_to(hide.astype(bool), (rows, visible))


def save_completions(
    path: Path, rows: np.ndarray, hide: np.ndarray, done: Completions, shape: _Shape
) -> None:
    """One line per row: the image, its known part, every completion, the mean of their pixel means."""
    number = done.samples.shape[1]
    means = done.means.mean(axis=1, keepdims=True)
    lines = np.concatenate([rows[:, None], rows[:, None], done.samples, means], axis=1)
    marks = np.zeros_like(lines)
    marks[:, 1] = hide
    titles = ["given", "known", *[f"{n + 1}" for n in range(number)], "mean"]
    _save(path, lines, titles, shape, marks)


def save_reconstructions(path: Path, rows: np.ndarray, means: np.ndarray, shape: _Shape) -> None:
    """One line per row: the image, and what comes back from the hidden units."""
    _save(path, np.stack([rows, means], axis=1), ["given", "reconstructed"], shape)


def _save(
    path: Path, lines: np.ndarray, titles: Sequence[str], shape: _Shape, marks: np.ndarray | None = None
) -> None:
    from matplotlib.figure import Figure

    _, columns, visible = lines.shape
    height, width = shape or (1, visible)
    sheet = np.repeat(grid(lines.reshape(-1, visible), (height, width), columns)[..., None], 3, axis=2)
    if marks is not None:
        sheet[grid(marks.reshape(-1, visible), (height, width), columns) == 1] = HIDDEN
    across = max(4.0, min(1.1 * columns, 14.0))
    figure = Figure(figsize=(across, across * sheet.shape[0] / sheet.shape[1] + 0.5), dpi=120)
    axes = figure.add_axes((0.01, 0.01, 0.98, 1 - 0.4 / figure.get_figheight()))
    axes.imshow(sheet, interpolation="nearest", aspect="auto")
    for number, title in enumerate(titles):
        axes.text(number * (width + 1) + 1 + width / 2 - 0.5, -1, title, ha="center", va="bottom", fontsize=9)
    axes.set_axis_off()
    save_figure(path, figure)
