"""Toronto faces: a user's own TFD_48x48.mat, at 24x24 as in the experiments of NRWS [nrws sec. 9.2].

The file is not distributed here and has no published checksum. Its first fold says which faces train,
choose and test; faces without a label belong to no fold and train, since a density model needs no labels.
(The published code drew its own splits at random; these are the data set's.) The side is halved by a
bicubic kernel, as in that code: a pixel lies in the middle of four, of weights -3/32, 19/32, 19/32, -3/32,
and lines are continued by their last pixel.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from natgrad.data.splits import SPLITS, Parts
from natgrad.errors import InputError

SIDE = 48
FOLDS = 5
MARKS = {"train": (0, 1), "valid": (2,), "test": (3,)}  # 0: without a label
KERNEL = np.array([-3, 19, 19, -3]) / 32  # Keys' cubic with a = -3/4, at distances 3/2 and 1/2
_CHUNK = 1024  # images at a time: about 20 MB of float64


def split_faces(images: np.ndarray, folds: np.ndarray, path: Path) -> Parts:
    """The three splits of the first fold, at half the side."""
    check_faces(images, folds, path)
    chosen = {name: np.flatnonzero(np.isin(folds[:, 0], marks)) for name, marks in MARKS.items()}
    if empty := [name for name in SPLITS if not len(chosen[name])]:
        raise InputError(
            f"expected {empty[0]} faces in the first fold of {path}, there are none; get it again"
        )
    rows = {name: halved(images, chosen[name]) for name in SPLITS}
    return Parts(rows, None, {"kind": "published", "how": "the first fold; faces without labels train"})


def check_faces(images: np.ndarray, folds: np.ndarray, path: Path) -> None:
    """Raise for anything but bytes [face, 48, 48] and marks 0..3 [face, 5]."""
    if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1:] != (SIDE, SIDE):
        raise InputError(
            f"expected 'images' of {path} as bytes [face, {SIDE}, {SIDE}], "
            f"got {images.dtype} {list(images.shape)}; get TFD_48x48.mat again"
        )
    if folds.dtype.kind not in "buif" or folds.shape != (len(images), FOLDS):
        raise InputError(
            f"expected 'folds' of {path} as numbers [{len(images)}, {FOLDS}], "
            f"got {folds.dtype} {list(folds.shape)}; get TFD_48x48.mat again"
        )
    if not np.isin(folds, sum(MARKS.values(), ())).all():
        raise InputError(f"expected 0, 1, 2 and 3 in 'folds' of {path}, got others; get TFD_48x48.mat again")


def halving(width: int) -> NDArray[np.float64]:
    """The matrix [width / 2, width] that halves a line of pixels.

    >>> (halving(8) * 32).astype(int).tolist()[1]
    [0, -3, 19, 19, -3, 0, 0, 0]
    """
    small = np.arange(width // 2)[:, None]
    reached = np.clip(2 * small + np.arange(-1, 3), 0, width - 1)
    half = np.zeros((width // 2, width))
    np.add.at(half, (small, reached), KERNEL)
    return half


def halved(images: np.ndarray, chosen: NDArray[np.intp]) -> NDArray[np.uint8]:
    """The chosen images at half their side, as rows of bytes; the kernel's overshoots are cut."""
    half = halving(images.shape[1])
    small = np.empty((len(chosen), len(half), len(half)), np.uint8)
    for start in range(0, len(chosen), _CHUNK):
        part = images[chosen[start : start + _CHUNK]].astype(np.float64)
        small[start : start + _CHUNK] = np.clip(np.rint(half @ part @ half.T), 0, 255)
    return small.reshape(len(chosen), -1)
