"""Pictures of completions (given | masked | completions | mean) and of reconstructions (given | mean)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from natgrad.evaluate.pictures import grid, save_figure

HIDDEN = (0.45, 0.6, 0.8)  # the color of a pixel that is not known

_Shape = tuple[int, int] | None


def save_completions(path: Path, rows: np.ndarray, hide: np.ndarray, done: Any, shape: _Shape) -> None:
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
