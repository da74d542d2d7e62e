"""Saved states: arrays as safetensors, and a manifest with their checksum, written atomically.

The manifest is renamed into place last: a state without one does not exist. The last two are kept.
Arrays are named by their place in the state, for example `model.generation.0.weight`.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from natgrad.errors import InputError
from natgrad.records.folder import json_line, write

T = TypeVar("T")
KEPT = 2


def save(folder: Path, step: int, state: Any, notes: dict[str, Any]) -> None:
    """Save a state of a run at a step, with notes that are not arrays."""
    from safetensors.numpy import save as serialise

    place = folder / "state"
    place.mkdir(exist_ok=True)
    blob = serialise({name: np.asarray(array, order="C") for name, array in named(state).items()})
    stem = f"{step:010d}"
    temporary = place / f".{stem}.tmp"
    temporary.write_bytes(blob)
    temporary.replace(place / f"{stem}.safetensors")
    manifest = {"format": 1, "step": step, "sha256": hashlib.sha256(blob).hexdigest(), "notes": notes}
    write(place / f"{stem}.json", json_line(manifest))
    for old in sorted(place.glob("*.json"))[:-KEPT]:
        old.unlink()
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def load(folder: Path, template: T) -> tuple[T, dict[str, Any]]:
    """The newest good state of a run, in the template's structure, and its notes."""
    for manifest in sorted((folder / "state").glob("*.json"), reverse=True):
        found = _read(manifest)
        if found is not None:
            arrays, notes = found
            return _fill(template, arrays, folder), notes
    raise InputError(f"{folder} holds no readable state; train it again, or restore its state/ folder")


def named(state: Any) -> dict[str, np.ndarray]:
    """Every array of a state by the name of its place."""
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}


def _read(manifest: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    from safetensors import SafetensorError
    from safetensors.numpy import load as parse

    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        blob = manifest.with_suffix(".safetensors").read_bytes()
        if hashlib.sha256(blob).hexdigest() != content["sha256"]:
            return None
        return parse(blob), content["notes"]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return None


def _fill(template: T, arrays: dict[str, np.ndarray], folder: Path) -> T:
    expected = {
        name: (leaf.shape, np.dtype(leaf.dtype))
        for name, leaf in zip(_names(template), jax.tree.leaves(template), strict=True)
    }
    got = {name: (array.shape, array.dtype) for name, array in arrays.items() if name in expected}
    if {name: shape for name, (shape, _) in got.items()} != {
        name: shape for name, (shape, _) in expected.items()
    }:
        raise InputError(
            f"the state in {folder} does not fit its config.toml; restore the config that wrote it"
        )
    if wrong := [name for name in expected if got[name] != expected[name]]:
        raise InputError(
            f"the state in {folder} holds {got[wrong[0]][1]} where {expected[wrong[0]][1]} is used now; "
            "set JAX_ENABLE_X64 as it was in training"
        )
    ordered = [jax.numpy.asarray(arrays[name]) for name in expected]
    return jax.tree.unflatten(jax.tree.structure(template), ordered)


def _names(template: Any) -> list[str]:
    leaves = jax.tree_util.tree_flatten_with_path(template)[0]
    return [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
