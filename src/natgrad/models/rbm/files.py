"""Machines as arrays in a .npz file: `weights` [visible, hidden], `visible_bias`, `hidden_bias`.

`coding` ("binary" or "signed") and `visible` ("bernoulli" or "gaussian") may be there too; without them,
units are in {0,1}.
"""

import io
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from natgrad.data.unread import open_npz
from natgrad.errors import InputError, check_paths
from natgrad.layers.bernoulli import CODINGS, Layer
from natgrad.models.rbm.machine import Boltzmann
from natgrad.models.rbm.units import BernoulliUnits, GaussianUnits
from natgrad.writing import write

ARRAYS = ("weights", "visible_bias", "hidden_bias")
_LARGEST = 2**28  # numbers of a machine that is read


def save_machine(path: str | Path, model: Boltzmann) -> Path:
    """Write a machine."""
    check_paths(path=path)
    coding = next(name for name, coding in CODINGS.items() if coding == model.hidden_units.coding)
    gaussian = not isinstance(model.visible_units, BernoulliUnits)
    content, place = io.BytesIO(), Path(path)
    arrays = dict(zip(ARRAYS, (model.weight.T, model.visible_bias, model.hidden_bias), strict=True))
    words = {"coding": coding, "visible": "gaussian" if gaussian else "bernoulli"}
    named: dict[str, Any] = {name: np.asarray(value) for name, value in (arrays | words).items()}
    np.savez(content, **named)
    try:
        write(place, content.getvalue())
    except OSError as error:
        raise InputError(f"cannot write {place}: {error.strerror}; give a file you can write to") from None
    return place


def load_machine(path: str | Path) -> Boltzmann:
    """Read a machine, or say what is wrong with the file."""
    place = Path(path)
    if place.suffix in (".h5", ".hdf5"):
        raise InputError(
            f"expected a .npz file of a machine's arrays, got the HDF5 file {place}; save its arrays "
            f"{', '.join(ARRAYS)} with numpy.savez"
        )
    if place.suffix != ".npz" or not place.is_file():
        raise InputError(f"expected a .npz file of a machine's arrays, got {place}; give an existing one")
    found = open_npz(place)
    missing = [name for name in ARRAYS if name not in found]
    if missing:
        raise InputError(
            f"expected the arrays {', '.join(ARRAYS)} in {place}, {missing[0]} is not there; add or rename it"
        )
    shapes = [found[name].shape for name in ARRAYS]
    if shapes[0] != (*shapes[1], *shapes[2]) or len(shapes[0]) != 2 or 0 in shapes[0]:
        raise InputError(
            f"expected weights of (visible, hidden) in {place}, got {shapes[0]} with biases {shapes[1]} and "
            f"{shapes[2]}; transpose or reshape them"
        )
    if sum(found[name].size for name in ARRAYS) > _LARGEST:
        raise InputError(f"expected at most {_LARGEST} numbers in {place}, got more; give a smaller machine")
    weights, below, above = (_numbers(found[name].whole(), place) for name in ARRAYS)
    words: dict[str, str] = {
        name: str(found[name].whole()) for name in ("coding", "visible") if name in found
    }
    return _machine(weights, below, above, words, place)


def _machine(
    weights: np.ndarray, below: np.ndarray, above: np.ndarray, words: dict[str, str], place: Path
) -> Boltzmann:
    coding, visible = words.get("coding", "binary"), words.get("visible", "bernoulli")
    if coding not in CODINGS or visible not in ("bernoulli", "gaussian"):
        raise InputError(
            f"expected binary or signed coding, bernoulli or gaussian units in {place}, got {coding} and "
            f"{visible}; correct them"
        )
    hidden = BernoulliUnits(CODINGS[coding])
    layer = Layer(jnp.asarray(weights.T), jnp.asarray(above))
    return Boltzmann(layer, jnp.asarray(below), GaussianUnits() if visible == "gaussian" else hidden, hidden)


def _numbers(array: np.ndarray, place: Path) -> np.ndarray:
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise InputError(f"expected finite numbers in {place}, got others; correct the file")
    return array.astype(jnp.zeros(()).dtype)
