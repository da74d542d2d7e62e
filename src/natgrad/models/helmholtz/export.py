"""A model's parameters as one safetensors file that needs no natgrad to be read (docs/export.md).

    prior                  [l_L]            generation.i.weight   [l_i, l_i+1]     generation.i.bias   [l_i]
                                            recognition.i.weight  [l_i+1, l_i]     recognition.i.bias  [l_i+1]

Layers are counted from the data upward. The header's metadata has the sizes and the two numbers that
stand for off and on.
"""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from natgrad.errors import InputError, check_paths
from natgrad.layers.bernoulli import Coding, Layer
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.records.state import arrays_by_name, opened
from natgrad.writing import write

_FORMAT = "natgrad-helmholtz-1"


def save_model(path: str | Path, model: Helmholtz) -> Path:
    """Write a model's parameters, whole or not at all."""
    from safetensors.numpy import save as serialize

    check_paths(path=path)
    path = Path(path)
    sizes = ",".join(str(size) for size in model.sizes)
    about = {"format": _FORMAT, "sizes": sizes, "off": str(model.coding.low), "on": str(model.coding.high)}
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays_by_name(model).items()}
    try:
        write(path, serialize(arrays, metadata=about))
    except OSError as error:
        raise InputError(
            f"cannot write the model to {path}: {error.strerror}; give a file you can write to"
        ) from None
    return path


def load_model(path: str | Path) -> Helmholtz:
    """The model of a file that `save_model` wrote, in the precision that JAX uses now."""
    about, arrays = _read(Path(path))
    try:
        sizes = [int(size) for size in about["sizes"].split(",")]
        coding = Coding(float(about["off"]), float(about["on"]))
        layers = range(len(sizes) - 1)
        generation = tuple(_layer(arrays, f"generation.{i}", sizes[i], sizes[i + 1]) for i in layers)
        recognition = tuple(_layer(arrays, f"recognition.{i}", sizes[i + 1], sizes[i]) for i in layers)
        return Helmholtz(_array(arrays, "prior", sizes[-1]), generation, recognition, coding)
    except (KeyError, ValueError) as error:
        raise InputError(
            f"{path} is not a whole natgrad model ({error}); write it again with `run.model.save`"
        ) from None


def _read(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    from safetensors import SafetensorError

    try:
        with opened(path) as file:
            about = file.metadata() or {}
            if about.get("format") != _FORMAT:
                raise InputError(
                    f"expected a file of the format {_FORMAT}, {path} says {about.get('format')!r}; "
                    "give one that `run.model.save` wrote"
                )
            return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except InputError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(
            f"cannot read {path} as safetensors ({error}); give a file that `run.model.save` wrote"
        ) from None


def _layer(arrays: dict[str, Any], name: str, units: int, inputs: int) -> Layer:
    return Layer(_array(arrays, f"{name}.weight", units, inputs), _array(arrays, f"{name}.bias", units))


def _array(arrays: dict[str, Any], name: str, *shape: int) -> Any:
    if arrays[name].shape != shape:
        raise ValueError(f"{name} has the shape {arrays[name].shape}, not {shape}")
    return jnp.asarray(arrays[name], jnp.zeros(()).dtype)
