"""Saved states: arrays as safetensors, and a manifest with their checksum, written atomically.

The manifest is renamed into place last: a state without one does not exist. The last two are kept, and
the newest good one is read. Arrays are named by their place in the state, for example
`state.model.layers.0.weight`. A state at the end of an epoch whose evaluation is still to come is
called `<step>-unevaluated`, so that the one after it replaces nothing.
"""

import hashlib
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from natgrad.errors import InputError, Newer
from natgrad.records.folder import json_line
from natgrad.writing import open_regular, read_regular, write

_T = TypeVar("_T")
KEPT = 2
FORMATS = (1, 2)  # 1: natgrad 0.1.0, which had no seal
_LONGEST = 1 << 20  # bytes of a manifest, and of a header of arrays: ours have thousands
_NAME = re.compile(r"(\d{10,18})(-unevaluated)?")
_log = logging.getLogger(__name__)


class Stored(NamedTuple):
    """A good state on disk: its notes, as read, and its arrays, opened."""

    folder: Path
    step: int
    notes: Any
    arrays: Any

    def part(self, place: str) -> dict[str, np.ndarray]:
        """The arrays at or below a place, by what follows it in their names."""
        inside = [name for name in self.arrays.keys() if f"{name}.".startswith(f"{place}.")]  # noqa: SIM118
        return {name[len(place) :].lstrip("."): self.arrays.get_tensor(name) for name in inside}

    def has(self, place: str) -> bool:
        """Whether there are arrays at or below a place."""
        return any(f"{name}.".startswith(f"{place}.") for name in self.arrays.keys())  # noqa: SIM118

    def fill(self, template: _T) -> _T:
        """Its arrays in the template's structure; arrays that the template does not name are left alone."""
        return _fill(template, self.arrays, self.folder)


def save_state(
    folder: Path, step: int, state: Any, notes: dict[str, Any], *, unevaluated: bool = False
) -> None:
    """Save a state of a run at a step, with notes that are not arrays."""
    from safetensors.numpy import save as serialize

    place = folder / "state"
    place.mkdir(exist_ok=True)
    blob = serialize({name: np.asarray(array, order="C") for name, array in arrays_by_name(state).items()})
    arrays = place / f"{step:010d}{'-unevaluated' if unevaluated else ''}.safetensors"
    write(arrays, blob)
    sealed = {"format": FORMATS[-1], "step": step, "sha256": hashlib.sha256(blob).hexdigest(), "notes": notes}
    manifest = arrays.with_suffix(".json")
    write(manifest, json_line(sealed | {"seal": _seal(json.loads(json_line(sealed)))}))
    _prune(place, manifest)


def load_state(folder: Path, template: _T) -> tuple[_T, dict[str, Any]]:
    """The newest good state of a run, in the template's structure, and its notes."""
    found = newest(folder)
    return found.fill(template), found.notes


def newest(folder: Path, read: Callable[[Any], Any] = lambda notes: notes) -> Stored:
    """The newest good state whose notes `read` takes (it returns None for others).

    One that a newer natgrad wrote, sealed as ours are, is neither damaged nor skipped: to continue from
    the state before it would remove it.
    """
    for manifest in manifests(folder):
        found = _open(manifest)
        if found is None:
            _log.warning("the state %s of %s is damaged; an older one is used", manifest.stem, folder)
        elif (notes := read(found[0])) is not None:
            return Stored(folder, _age(manifest)[0], notes, found[1])
    raise InputError(f"{folder} holds no readable state; train it again, or restore its state/ folder")


def manifests(folder: Path) -> list[Path]:
    """The manifests of a run's states, newest first."""
    found = [path for path in (folder / "state").glob("*.json") if _NAME.fullmatch(path.stem)]
    return sorted(found, key=_age, reverse=True)


def arrays_by_name(state: Any) -> dict[str, np.ndarray]:
    """Every array of a state by the name of its place."""
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}


def _age(manifest: Path) -> tuple[int, bool]:
    step, _, before = manifest.stem.partition("-")
    return int(step), not before


def _prune(place: Path, latest: Path) -> None:
    """Keep the state just saved and the one before; newer ones are of a training that was rolled back.

    What a kill left goes too, half-written under a temporary name or without its manifest: the run is locked,
    and it is nobody's.
    """
    for torn in place.glob(".*.tmp"):
        torn.unlink(missing_ok=True)
    for arrays in place.glob("*.safetensors"):
        if _NAME.fullmatch(arrays.stem) and not arrays.with_suffix(".json").exists():
            arrays.unlink(missing_ok=True)
    ordered = manifests(place.parent)
    rank = ordered.index(latest)
    for old in (*ordered[:rank], *ordered[rank + KEPT :]):
        old.unlink(missing_ok=True)
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def _seal(content: dict[str, Any]) -> str:
    """The checksum of a manifest's own contents."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def opened(path: Path) -> Any:
    """The arrays of a safetensors file, opened but not read; ValueError where its header is absurdly long."""
    from safetensors import safe_open

    with open_regular(path) as stream:
        if int.from_bytes(stream.read(8), "little") > _LONGEST:
            raise ValueError("its header is too long")
    return safe_open(path, "np")


def _open(manifest: Path) -> tuple[Any, Any] | None:
    """A manifest's notes and its arrays, opened but not read; None where either is damaged."""
    from safetensors import SafetensorError

    path = manifest.with_suffix(".safetensors")
    try:
        content = _contents(manifest)
        with open_regular(path) as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != content["sha256"]:
                return None
        return content["notes"], opened(path)
    except Newer:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError):
        return None


def _contents(manifest: Path) -> dict[str, Any]:
    content = json.loads(read_regular(manifest, _LONGEST))
    number = content["format"]
    if number != 1 and content.pop("seal") != _seal(content):
        raise ValueError("another seal")
    if type(number) is int and number > FORMATS[-1]:
        raise Newer(f"the state {manifest.stem} of {manifest.parent.parent}", number, FORMATS[-1])
    if number not in FORMATS:
        raise ValueError("another format")
    return content


def _fill(template: _T, arrays: Any, folder: Path) -> _T:
    """Shapes are compared before anything is read: nothing is believed because a file says so."""
    leaves, names = jax.tree.leaves(template), _names(template)
    present = set(arrays.keys())
    found = []
    for name, leaf in zip(names, leaves, strict=True):
        if name not in present or tuple(arrays.get_slice(name).get_shape()) != tuple(leaf.shape):
            raise InputError(
                f"the state in {folder} does not fit its config.toml; restore the config that wrote it"
            )
        found.append(_array(arrays, name, np.dtype(leaf.dtype), folder))
    return jax.tree.unflatten(jax.tree.structure(template), found)


def _array(arrays: Any, name: str, expected: np.dtype, folder: Path) -> Any:
    try:
        array = arrays.get_tensor(name)
        got = str(array.dtype)
    except TypeError:  # a type that numpy does not have
        array, got = None, arrays.get_slice(name).get_dtype()
    if got != str(expected):
        raise InputError(
            f"the state in {folder} holds {got} where {expected} is used now; "
            "set JAX_ENABLE_X64 as it was in training"
        )
    return jax.block_until_ready(jax.device_put(array))  # one array after the other, not all in two copies


def _names(template: Any) -> list[str]:
    leaves = jax.tree_util.tree_flatten_with_path(template)[0]
    return [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
