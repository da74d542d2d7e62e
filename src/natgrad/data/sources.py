"""Readers: from the files of a set to its three splits.

Every reader has the same signature, `read(paths, visible, seed) -> Parts`, so that the catalogue is
a plain table. Values are bytes as the source has them; binarization comes after.
"""

import gzip
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from natgrad.data import formats, splits, toronto
from natgrad.data.mini import shrink, shrink_gray
from natgrad.data.patterns import draw_three_by_three
from natgrad.data.splits import SPLITS, Parts
from natgrad.errors import InputError


def three_by_three(paths: Sequence[Path], visible: int, seed: int) -> Parts:
    """Kirby's patterns, made on the spot."""
    del paths, visible
    return draw_three_by_three(seed)


def digits(paths: Sequence[Path], visible: int, seed: int) -> Parts:
    """The 1,797 digits that scikit-learn carries inside it, 17 gray levels."""
    del paths, visible
    pixels, classes = _embedded_digits()
    indices = splits.at_random(len(pixels), (1297, 200, 300), seed)
    return splits.drawn(pixels.astype(np.uint8), classes.astype(np.uint8), indices, seed, "drawn at random")


def _embedded_digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels and classes from scikit-learn's own file: to import it for them takes seconds."""
    found = find_spec("sklearn")
    if found is not None and found.origin is not None:
        path = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                values = np.array(stream.read().replace("\n", ",").rstrip(",").split(","), np.float64)
            return values.reshape(-1, 65)[:, :-1], values.reshape(-1, 65)[:, -1]
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def idx(paths: Sequence[Path], visible: int, seed: int) -> Parts:
    """Train images and labels, test images and labels; 10,000 train rows become valid."""
    train, train_labels, test, test_labels = (formats.read_idx(path) for path in paths)
    rows = {"train": rows_of_bytes(train, visible, paths[0]), "test": rows_of_bytes(test, visible, paths[2])}
    labels = {"train": train_labels, "test": test_labels}
    return splits.carved(rows, labels, seed, source="train", target="valid", size=10_000)


def packed(paths: Sequence[Path], visible: int, seed: int) -> Parts:
    """Binary rows packed into bits, all three splits published, labels in some."""
    del seed
    arrays = formats.read_packed(paths[0], visible)
    rows = chosen(arrays, SPLITS, paths[0])
    labels = {name: arrays[f"{name}_labels"] for name in SPLITS if f"{name}_labels" in arrays}
    return splits.published(rows, labels)


def packed_without_test(paths: Sequence[Path], visible: int, seed: int) -> Parts:
    """As `packed` for a source that lacks its test rows: half of the valid rows take their place."""
    rows = chosen(formats.read_packed(paths[0], visible), ("train", "valid"), paths[0])
    return splits.carved(rows, None, seed, source="valid", target="test", size=len(rows["valid"]) // 2)


def mini(paths: Sequence[Path], visible: int, seed: int) -> Parts:
    """Binarized MNIST at half its side."""
    large = packed(paths, 4 * visible, seed)
    return large._replace(rows={name: shrink(rows) for name, rows in large.rows.items()})


def mini_gray(paths: Sequence[Path], visible: int, seed: int) -> Parts:
    """The original gray MNIST at half its side, split as `idx` splits it."""
    large = idx(paths, 4 * visible, seed)
    return large._replace(rows={name: shrink_gray(rows) for name, rows in large.rows.items()})


def omniglot(paths: Sequence[Path], visible: int, seed: int) -> Parts:
    """Gray train and test rows of different alphabets; a tenth of the train rows become valid."""
    arrays = formats.read_npz(paths[0])
    rows = {
        name: rows_of_bytes(rows, visible, paths[0])
        for name, rows in chosen(arrays, ("train", "test"), paths[0]).items()
    }
    labels = {"train": arrays["train_char"], "test": arrays["test_char"]}
    return splits.carved(rows, labels, seed, source="train", target="valid", size=len(rows["train"]) // 10)


def film(paths: Sequence[Path], visible: int, seed: int) -> Parts:
    """Frames in time order: neighbors are near-duplicates, so 15 runs of frames go 11/2/2."""
    images = rows_of_bytes(
        chosen(formats.read_npz(paths[0]), ("images",), paths[0])["images"], visible, paths[0]
    )
    indices = splits.in_blocks(len(images), (11, 2, 2), seed)
    return splits.drawn(images, None, indices, seed, "contiguous blocks drawn at random")


def toronto_faces(paths: Sequence[Path], visible: int, seed: int) -> Parts:
    """A user's Toronto Faces file, in its own first fold."""
    del visible, seed
    arrays = chosen(formats.read_mat(paths[0], ("images", "folds")), ("images", "folds"), paths[0])
    return toronto.split_faces(arrays["images"], arrays["folds"], paths[0])


def portraits(paths: Sequence[Path], visible: int, seed: int) -> Parts:
    """Ten portraits of each person: seven train, one valid, two test."""
    arrays = chosen(formats.read_npz(paths[0]), ("images", "person"), paths[0])
    indices = splits.per_group(arrays["person"], (7, 1, 2), seed)
    images = rows_of_bytes(arrays["images"], visible, paths[0])
    return splits.drawn(images, arrays["person"], indices, seed, "drawn at random for each person")


def chosen(arrays: dict[str, np.ndarray], wanted: Sequence[str], path: Path) -> dict[str, np.ndarray]:
    """The wanted arrays of a file, in that order."""
    if missing := [name for name in wanted if name not in arrays]:
        raise InputError(
            f"expected the arrays {', '.join(wanted)} in {path}, {missing[0]!r} is not there; get it again"
        )
    return {name: arrays[name] for name in wanted}


def rows_of_bytes(images: np.ndarray, visible: int, path: Path) -> np.ndarray:
    """Images as rows of `visible` bytes."""
    if images.dtype != np.uint8 or images[0].size != visible:
        raise InputError(
            f"expected rows of {visible} bytes in {path}, "
            f"got {images[0].size} of {images.dtype}; get it again"
        )
    return images.reshape(len(images), visible)
