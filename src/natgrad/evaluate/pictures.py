"""Pictures as files: grids of images, and sheets of them side by side."""

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont

from natgrad.errors import InputError
from natgrad.writing import write

if TYPE_CHECKING:  # whoever only saves a figure needs no JAX
    from natgrad.core import Sheet

_PANEL, _CAPTION, _MARGIN = 600, 48, 6  # pixels: the side of a sheet, the height of its caption, around both


def grid(images: Float[np.ndarray, "image pixel"], shape: tuple[int, int], columns: int) -> np.ndarray:
    """Images in rows of `columns`, one pixel apart, as one array of gray values in [0, 1]."""
    height, width = shape
    rows = -(-len(images) // columns)
    sheet = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1), 0.5)
    for number, image in enumerate(images):
        top, left = (number // columns) * (height + 1) + 1, (number % columns) * (width + 1) + 1
        sheet[top : top + height, left : left + width] = image.reshape(shape)
    return sheet


def save_sheets(path: Path, sheets: "Mapping[str, Sheet]") -> None:
    """Write a picture of all sheets side by side, each under its caption; no file where there is no sheet.

    Drawn by Pillow: a training ends with this picture, and importing Matplotlib takes a second.
    """
    if not sheets:
        return
    panels = [_panel(title, _laid_out(sheet)) for title, sheet in sheets.items()]
    whole = Image.new("L", (len(panels) * _PANEL, _PANEL + _CAPTION), 255)
    for number, panel in enumerate(panels):
        whole.paste(panel, (number * _PANEL, 0))
    _save_image(path, whole)


def _panel(title: str, values: np.ndarray) -> Image.Image:
    """Values in [0, 1] as gray squares, as large as fit, with a title above."""
    height, width = values.shape
    factor = (_PANEL - 2 * _MARGIN) / max(height, width)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    pixels = Image.fromarray((np.clip(np.nan_to_num(values), 0, 1) * 255).round().astype(np.uint8))
    panel = Image.new("L", (_PANEL, _PANEL + _CAPTION), 255)
    panel.paste(
        pixels.resize(size, Image.Resampling.NEAREST),
        ((_PANEL - size[0]) // 2, _CAPTION + (_PANEL - size[1]) // 2),
    )
    place = _PANEL / 2, _CAPTION + (_PANEL - size[1]) / 2 - 2 * _MARGIN
    ImageDraw.Draw(panel).text(place, title, 0, ImageFont.load_default(20), anchor="ms")
    return panel


def _save_image(path: Path, image: Image.Image) -> None:
    """Write an image: as PNG, or by Matplotlib in the format of the file's name, such as PDF."""
    from_name = path.suffix.lower() not in ("", ".png")
    if from_name:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(image.width / 120, image.height / 120), dpi=120)
        figure.figimage(np.asarray(image), cmap="gray", vmin=0, vmax=255)
        return save_figure(path, figure)
    return _write_picture(path, _png(image))


def sheet_png(title: str, sheet: "Sheet") -> bytes:
    """A sheet under its caption, as the content of a PNG file."""
    return _png(_panel(title, _laid_out(sheet)))


def _png(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


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
        why = "it is a folder" if path.is_dir() else f"{folder} is not a folder you can write to"
        raise InputError(f"cannot write the picture {path}: {why}; give another --out")
    return path


def save_figure(path: Path, figure: Any) -> None:
    """Write a figure, whole or not at all: in the format of the file's name, or else as PNG."""
    content, ending = io.BytesIO(), path.suffix.removeprefix(".").lower()
    known = ending in figure.canvas.get_supported_filetypes()
    figure.savefig(content, format=ending if known else "png")
    _write_picture(path, content.getvalue())


def _write_picture(path: Path, content: bytes) -> None:
    try:
        write(path, content)
    except OSError as error:
        raise InputError(
            f"cannot write the picture {path}: {error.strerror}; give a file you can write to"
        ) from None
