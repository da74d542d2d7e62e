"""Grey pictures as PNG, by hand: a header, a transparent value, one compressed block, an end."""

import base64
import struct
import zlib

import numpy as np
from jaxtyping import UInt8

CLEAR = 128
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def encode_png(pixels: UInt8[np.ndarray, "row column"]) -> bytes:
    """An array of grey values as a PNG of 8 bits a pixel; `CLEAR` lets the page shine through."""
    height, width = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits, grey, no interlacing
    lines = np.pad(pixels, ((0, 0), (1, 0)))  # every line begins with its filter: 0, none
    return SIGNATURE + b"".join(
        _chunk(kind, content)
        for kind, content in (
            (b"IHDR", header),
            (b"tRNS", struct.pack(">H", CLEAR)),
            (b"IDAT", zlib.compress(lines.tobytes(), 9)),
            (b"IEND", b""),
        )
    )


def data_uri(pixels: UInt8[np.ndarray, "row column"]) -> str:
    """The PNG as an address that holds the picture itself."""
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode("ascii")


def _chunk(kind: bytes, content: bytes) -> bytes:
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))
