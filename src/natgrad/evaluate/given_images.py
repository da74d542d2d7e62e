"""From what a user gives to rows and a mask: `test:12`, `image.npy`, `image.png`; `left`, `mask.npy`.

Gray values are rounded: what is known of an image is 0 or 1, unless the run's data are real numbers. A mask
is true (or white) where a pixel is hidden.
"""

import re
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from natgrad.data import Dataset
from natgrad.data.unread import open_npy
from natgrad.errors import InputError, unknown

_GRAY = 255
_LARGEST = 1 << 22  # values of a file of images: each takes several bytes here
_SPLIT = re.compile(r"(train|valid|test):(\d+(?:,\d+)*)")


class GivenImages(NamedTuple):
    """What a run's data and model say about images: their rows, their width, their shape."""

    dataset: Dataset
    visible: int
    image_shape: tuple[int, int] | None

    @property
    def real(self) -> bool:
        """Whether values are real numbers, and stay as they are."""
        return self.dataset.train.dtype.kind == "f"

    def rows(self, given: str) -> NDArray[np.uint8] | NDArray[np.float32]:
        """The rows, [image, visible], that a name or a file stands for."""
        if match := _SPLIT.fullmatch(given):
            return self._of_split(match[1], [int(index) for index in match[2].split(",")])
        if Path(given).suffix.lower() not in FILES:
            raise InputError(
                f"--given: expected test:NUMBER (or train:, valid:), a .npy or a .png file, got {given!r}"
            )
        means = self._fitting(_unit(self._read(given), given, real=self.real), given)
        return means.astype(np.float32) if self.real else (means > 0.5).astype(np.uint8)

    def mask(self, mask: str, seed: int = 0) -> NDArray[np.bool_]:
        """Where pixels are hidden, [visible], by a name or a file."""
        if Path(mask).suffix.lower() in FILES:
            hide = self._fitting(_unit(self._read(mask), mask), mask)
            if len(hide) != 1 or not np.isin(hide, (0, 1)).all():
                raise InputError(f"--mask: expected one mask of 0 and 1 in {mask}, 1 where a pixel is hidden")
            return hide[0] == 1
        if mask == "half":
            return np.random.default_rng(seed).permutation(self.visible) < self.visible // 2
        if mask not in MASKS:
            raise unknown("mask", mask, [*MASKS, "half", "a .npy or .png file"])
        if self.image_shape is None:
            raise InputError(
                f"--mask: {mask!r} needs images, and the rows of this run have no image shape; "
                "use half, or a .npy file"
            )
        height, width = self.image_shape
        down, across = np.mgrid[:height, :width] + 0.5
        return MASKS[mask](down / height, across / width).reshape(-1)

    def _of_split(self, split: str, indices: list[int]) -> NDArray[np.uint8] | NDArray[np.float32]:
        values = getattr(self.dataset, split)
        if max(indices) >= len(values):
            raise InputError(
                f"--given: expected a number below {len(values)}, the rows of {split}, got {max(indices)}"
            )
        if self.real:
            return values[indices]
        return (2 * values[indices].astype(int) > self.dataset.levels).astype(np.uint8)

    def _read(self, place: str) -> np.ndarray:
        if Path(place).suffix.lower() == ".npy":
            if (found := open_npy(Path(place))).size > _LARGEST:
                raise InputError(
                    f"expected at most {_LARGEST} values in {place}, got {found.size}; give fewer images"
                )
            return found.whole()
        return _read_png(Path(place), self.image_shape)

    def _fitting(self, array: np.ndarray, place: str) -> np.ndarray:
        """As rows, if a row, an image, rows or images of the right size were given."""
        sizes = [(self.visible,), self.image_shape]
        if array.shape in sizes:
            return array.reshape(1, self.visible)
        if array.shape[1:] in sizes and len(array):
            return array.reshape(len(array), self.visible)
        shape = f", or an image of {' x '.join(map(str, self.image_shape))}" if self.image_shape else ""
        raise InputError(
            f"expected {self.visible} values{shape} in {place}, got the shape {array.shape}; reshape it"
        )


def _unit(array: np.ndarray, place: str, *, real: bool = False) -> np.ndarray:
    """Values in [0, 1], from such values or from bytes; any finite ones where they are to be real."""
    if array.dtype == np.uint8 and array.size and array.max() > 1:
        return array / _GRAY
    if real and array.dtype.kind in "buif" and np.isfinite(array).all():
        return array.astype(np.float64)
    if array.dtype.kind not in "buif" or not ((array >= 0) & (array <= 1)).all():
        raise InputError(f"expected values in [0, 1] or bytes in {place}, got others; rescale them")
    return array.astype(np.float64)


def _read_png(path: Path, shape: tuple[int, int] | None) -> np.ndarray:
    """The gray values of a picture, whose size is checked before it is unpacked."""
    from PIL import Image, UnidentifiedImageError

    if shape is None:
        raise InputError(
            f"{path} is a picture, and the rows of this run have no image shape; give a .npy file"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=["PNG"]) as image:
                if image.size != shape[::-1]:
                    raise InputError(
                        f"expected a picture of {shape[0]} x {shape[1]} pixels (height x width), "
                        f"{path} has {image.height} x {image.width}; resize it"
                    )
                return np.asarray(image.convert("L"))
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read the picture {path} ({error}); give a PNG file") from None


FILES = (".npy", ".png")

MASKS = {
    "left": lambda down, across: across < 0.5,
    "right": lambda down, across: across > 0.5,
    "top": lambda down, across: down < 0.5,
    "bottom": lambda down, across: down > 0.5,
    "center": lambda down, across: (abs(down - 0.5) < 0.25) & (abs(across - 0.5) < 0.25),
}
"""Which part of an image a name hides, by the relative place of a pixel's center."""
