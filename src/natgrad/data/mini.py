"""mini-mnist: MNIST at 14x14, made as the published runs made it.

Each 28x28 image is blurred by a Gaussian (sigma 1/2, cut at four sigma, mirrored at the border),
averaged over blocks of 2x2, and set where the mean exceeds one half. All but the threshold is
linear and separable, so it is one 14x28 matrix A applied from both sides: A x A^T.

The rounded set (the paper's B) comes from the fixed binarization of MNIST. The gray set (its C) comes
from the original gray images, as in the published code, and the means are kept to the nearest of 256
levels. Its split is that of `mnist` here; the published code took 5,000 rows for validation.

A straight edge through the middle of a block gives exactly one half; the margin below keeps such
ties at 0 whatever the order in which a machine adds up.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

SIGMA = 0.5
TRUNCATE = 4.0
MARGIN = 1e-9
_CHUNK = 4096  # rows at a time: about 25 MB of float64


def taps() -> NDArray[np.float64]:
    """Weights of the sampled Gaussian at -radius, ..., radius; they sum to one.

    >>> taps().round(6).tolist()
    [0.000264, 0.106451, 0.786571, 0.106451, 0.000264]
    """
    radius = int(TRUNCATE * SIGMA + 0.5)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / SIGMA) ** 2)
    return weights / weights.sum()


def shrinking(width: int) -> NDArray[np.float64]:
    """The matrix [width / 2, width] that blurs a line of pixels and averages its pairs."""
    weights = taps()
    offsets = np.arange(len(weights)) - len(weights) // 2
    reached = np.abs(np.arange(width)[:, None] + offsets)  # mirror at the left: -1 is pixel 1
    reached = np.where(reached < width, reached, 2 * (width - 1) - reached)
    blur = np.zeros((width, width))
    np.add.at(blur, (np.arange(width)[:, None], reached), weights)
    return blur.reshape(width // 2, 2, width).mean(axis=1)


def shrink(rows: NDArray[np.uint8], side: int = 28) -> NDArray[np.uint8]:
    """Half the side of square binary images: [row, side * side] to [row, side * side / 4], in {0,1}."""
    return shrunk(rows, side, lambda means: means > 0.5 + MARGIN)


def shrink_gray(rows: NDArray[np.uint8], side: int = 28) -> NDArray[np.uint8]:
    """As `shrink` for bytes 0..255: the means to the nearest byte, halves down."""
    return shrunk(rows, side, lambda means: np.ceil(means - 0.5 - MARGIN))


def shrunk(
    rows: NDArray[np.uint8], side: int, code: Callable[[NDArray[np.float64]], np.ndarray]
) -> NDArray[np.uint8]:
    """The blurred and averaged images, coded as bytes, a chunk of rows at a time."""
    half = shrinking(side)
    small = np.empty((len(rows), side // 2, side // 2), np.uint8)
    for start in range(0, len(rows), _CHUNK):
        images = rows[start : start + _CHUNK].reshape(-1, side, side).astype(np.float64)
        small[start : start + _CHUNK] = code(half @ (images @ half.T))
    return small.reshape(len(rows), -1)
