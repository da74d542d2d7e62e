"""Gray pictures as PNG files, inside the page."""

import base64
import io

import numpy as np
from jaxtyping import UInt8
from PIL import Image

CLEAR = 128


def encode_png(pixels: UInt8[np.ndarray, "row column"]) -> bytes:
    """An array of gray values as a PNG of 8 bits a pixel; `CLEAR` lets the page shine through."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", transparency=CLEAR, optimize=True)
    return file.getvalue()


def data_uri(pixels: UInt8[np.ndarray, "row column"]) -> str:
    """The PNG as an address that holds the picture itself."""
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode("ascii")
