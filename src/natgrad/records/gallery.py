"""What a model dreams, kept through training: a few pixel means and samples at every evaluation.

`gallery/<step>.safetensors` holds two arrays of bytes, `means` [picture, pixel] from 0 to 255 and
`samples` [picture, pixel] of 0 and 1, always drawn with the same key, so that they show how one set
of dreams takes form. Above `KEPT` evaluations every second one is dropped: a long training keeps
between half of them and all, spread over the whole. Pictures are never a reason to stop a training.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.layers import generator
from natgrad.models.helmholtz.machine import Helmholtz, dream
from natgrad.records.folder import write
from natgrad.records.state import opened

PICTURES, KEPT = 25, 24
LARGEST = 1 << 24  # bytes of a file that can be one of ours: nothing larger is opened


def keep(folder: Path, step: int, model: Any) -> None:
    """Keep the dreams of a model at a step; a model without pictures, or a disk without room, keeps none."""
    from safetensors.numpy import save

    place = folder / "gallery"
    if not isinstance(model, Helmholtz) or place.is_symlink():  # never into somebody else's folder
        return
    drawn = {name: np.asarray(array) for name, array in _drawn(generator.key(0), model).items()}
    with suppress(OSError):
        place.mkdir(exist_ok=True)
        write(place / f"{step:010d}.safetensors", save(drawn))
        _thin(place)


def pictures(folder: Path) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """(step, {"means", "samples"}) of every evaluation kept, in order; what is damaged is left out."""
    from safetensors import SafetensorError

    for path in _files(folder / "gallery"):
        try:
            if path.stat().st_size > LARGEST:
                continue
            found = opened(path)
            means, samples = found.get_tensor("means"), found.get_tensor("samples")
        except (OSError, ValueError, KeyError, TypeError, SafetensorError):
            continue
        if means.shape == samples.shape and means.ndim == 2 and means.dtype == samples.dtype == np.uint8:
            yield int(path.stem), {"means": means, "samples": samples}


def _thin(place: Path) -> None:
    files = _files(place)
    if len(files) > KEPT:
        for path in files[1:-1:2]:
            path.unlink()


def _files(place: Path) -> list[Path]:
    return sorted(path for path in place.glob("*.safetensors") if path.stem.isdecimal())


@jax.jit
def _drawn(key: jax.Array, model: Helmholtz) -> dict[str, jax.Array]:
    """The means and samples of `PICTURES` dreams as bytes, [picture, pixel]."""
    dreams = dream(key, model, 1, PICTURES)
    means = jnp.round(jax.nn.sigmoid(dreams.generation[0][:, 0]) * 255)
    return {
        "means": means.T.astype(jnp.uint8),
        "samples": model.coding.on(dreams.values[0][:, 0]).T.astype(jnp.uint8),
    }
