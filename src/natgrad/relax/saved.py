"""A search on disk: one safetensors file with notes as JSON in its header, written whole or not at all."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from natgrad import writing
from natgrad.errors import InputError

NAME, _FORMAT = "search.safetensors", "1"


def write_search(folder: Path, content: Any, notes: dict[str, Any]) -> None:
    """Write the arrays of a tree under the names of their places, and notes."""
    from safetensors.numpy import save

    leaves = jax.tree_util.tree_flatten_with_path(content)[0]
    arrays = {_name(path): np.asarray(leaf, order="C") for path, leaf in leaves}
    folder.mkdir(parents=True, exist_ok=True)
    writing.write(folder / NAME, save(arrays, metadata={"format": _FORMAT, "notes": json.dumps(notes)}))


def read_search(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """All arrays by name, and the notes."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(folder / NAME), framework="numpy") as stream:
            notes = json.loads(stream.metadata()["notes"])
            return {name: stream.get_tensor(name) for name in stream.keys()}, notes  # noqa: SIM118
    except (OSError, KeyError, TypeError, ValueError, SafetensorError):
        raise InputError(
            f"{folder} holds no readable search ({NAME}); give a folder that a search was saved to"
        ) from None


def fill(template: Any, arrays: dict[str, np.ndarray], prefix: str) -> Any:
    """The template with its leaves replaced by the arrays of their places."""
    leaves = jax.tree_util.tree_flatten_with_path(template)[0]
    found = [jax.numpy.asarray(arrays[f"{prefix}.{_name(path)}"]) for path, _ in leaves]
    return jax.tree.unflatten(jax.tree.structure(template), found)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
