"""What notebooks show of objects: a few lines of text, and pictures below them."""

import base64
import html
import io
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from natgrad.core import Sheet
from natgrad.evaluate.pictures import sheet_png

_SHOWN = 25  # samples of a model in a notebook
_TOLD = 8  # arrays of a model whose shapes are told


def html_with_pictures(text: str, pictures: Sequence[bytes] = ()) -> str:
    """Lines of text, with PNG images below."""
    images = "".join(
        '<img alt="" style="max-height:18em;max-width:48%" '
        f'src="data:image/png;base64,{base64.b64encode(raw).decode()}">'
        for raw in pictures
    )
    return f"<div><p>{'<br>'.join(map(html.escape, text.splitlines()))}</p>{images}</div>"


def png_of(figure: Any) -> bytes:
    """A figure of matplotlib's as PNG."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


def model_text(model: Any) -> str:
    """A trained model in a line: its class, and how many parameters in which arrays."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(model.parameters)]
    told = ["x".join(map(str, shape)) or "1" for shape in shapes[:_TOLD]]
    told += ["..."] if len(shapes) > _TOLD else []
    count = sum(int(np.prod(shape)) for shape in shapes)
    return f"{type(model).__name__} with {count:,} parameters in arrays of {', '.join(told)}"


def model_html(model: Any) -> str:
    """The same line and, of a model that can be sampled, a few samples: square images where they can be."""
    if not hasattr(model, "sample"):
        return html_with_pictures(model_text(model))
    rows = model.sample(_SHOWN)
    side = math.isqrt(rows.shape[1])
    shape = (side, side) if side > 1 and side * side == rows.shape[1] else None
    return html_with_pictures(model_text(model), [sheet_png("samples", Sheet(rows, shape))])
