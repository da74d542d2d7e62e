"""A search on disk: one safetensors file, written whole or not at all.

Notes are JSON in its header, and so is a checksum of notes and arrays: a search that has changed on the disk
is not continued.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from natgrad import writing
from natgrad.errors import InputError
from natgrad.writing import open_regular

NAME, _FORMAT = "search.safetensors", "2"  # 1 had no checksum


def write_search(folder: Path, content: Any, notes: dict[str, Any]) -> None:
    """Write the arrays of a tree under the names of their places, and notes."""
    from safetensors.numpy import save

    leaves = jax.tree_util.tree_flatten_with_path(content)[0]
    arrays = {_name(path): np.asarray(leaf, order="C") for path, leaf in leaves}
    text = json.dumps(notes)
    facts = {"format": _FORMAT, "notes": text, "sha256": _checksum(arrays, text)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writing.write(folder / NAME, save(arrays, metadata=facts))
    except OSError as error:
        raise InputError(
            f"cannot save the search to {folder}: {error.strerror}; give a folder you can write to"
        ) from None


def read_search(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """All arrays by name, and the notes."""
    from safetensors import SafetensorError, safe_open

    try:
        open_regular(folder / NAME).close()
        with safe_open(str(folder / NAME), framework="numpy") as stream:
            facts = stream.metadata()
            arrays = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
        if facts["format"] != _FORMAT or facts["sha256"] != _checksum(arrays, facts["notes"]):
            raise ValueError("another format, or changed")
        return arrays, json.loads(facts["notes"])
    except (OSError, KeyError, TypeError, ValueError, SafetensorError):
        raise InputError(
            f"{folder} holds no readable search ({NAME} is missing, damaged or of another version); "
            "restore it from a copy, or give another folder"
        ) from None


def fill(template: Any, arrays: dict[str, np.ndarray], prefix: str) -> Any:
    """The template with its leaves replaced by the arrays of their places."""
    leaves = jax.tree_util.tree_flatten_with_path(template)[0]
    found = [jax.numpy.asarray(arrays[f"{prefix}.{_name(path)}"]) for path, _ in leaves]
    return jax.tree.unflatten(jax.tree.structure(template), found)


def _checksum(arrays: dict[str, np.ndarray], notes: str) -> str:
    found = hashlib.sha256(notes.encode())
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
