"""The mesh of a training: how many devices split rows, and how many split units.

    rows=4,units=2      four times two devices: batches by rows, layers by units

A mesh is not part of what a run is: it is given where a training starts or continues, and states carry no
layout. The devices are those of JAX, on one computer or on several (`natgrad.training.hosts`).
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from natgrad.data import Dataset, load_settings
from natgrad.devices import everywhere, has_mesh, parts, placed
from natgrad.errors import InputError

MESH_AXES = ("rows", "units")
_VIRTUAL = "XLA_FLAGS=--xla_force_host_platform_device_count"


def mesh_sizes(text: str) -> dict[str, int]:
    """The sizes of a mesh by its axes.

    >>> mesh_sizes("rows=4,units=2")
    {'rows': 4, 'units': 2}
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\w+)\s*=\s*([1-9]\d{0,5})\s*", part)
        if match is None or match[1] not in MESH_AXES or match[1] in found:
            raise InputError(
                f"mesh: expected devices for {' and '.join(MESH_AXES)}, such as rows=4,units=2, got {text!r}"
            )
        found[match[1]] = int(match[2])
    return found


@contextmanager
def on_mesh(mesh: str | None, device: str = "auto") -> Iterator[None]:
    """Compute on a mesh of the devices that are here, or without one as always."""
    if mesh is None:
        yield
        return
    sizes, found = mesh_sizes(mesh), jax.devices() if device == "auto" else jax.devices(device)
    _check_number(mesh, prod(sizes.values()), len(found))
    kinds = (AxisType.Auto,) * len(sizes)
    made = jax.make_mesh(
        (*sizes.values(),), (*sizes,), axis_types=kinds, devices=found[: prod(sizes.values())]
    )
    with jax.set_mesh(made):
        yield


def _check_number(mesh: str, needed: int, there: int) -> None:
    if needed > there:
        raise InputError(
            f"the mesh {mesh} takes {needed} devices, JAX finds {there} here; make it smaller, "
            f"or for virtual devices of a processor set {_VIRTUAL}={needed}"
        )
    if needed != there and jax.process_count() > 1:
        raise InputError(
            f"the mesh {mesh} takes {needed} devices, the {jax.process_count()} processes have {there}; "
            "on several hosts a mesh takes them all"
        )


def check_split(size: int) -> None:
    """Refuse a batch that the mesh cannot split evenly."""
    if size % parts("rows"):
        raise InputError(
            f"the batch size {size} is not a multiple of the mesh's rows={parts('rows')}; "
            "change --batch-size or --mesh"
        )


def spread_rows(rows: Any) -> Any:
    """Stored rows split over the devices, each of which gets its own; filled up with rows nobody asks for.

    Of rows that were left in a file a host reads those of its own devices.
    """
    if not has_mesh():
        return rows
    place = NamedSharding(jax.sharding.get_mesh(), PartitionSpec("rows" if parts("rows") > 1 else None))

    def spread(leaf: Any) -> Any:
        count = len(leaf) + -len(leaf) % parts("rows")

        def own(index: Any) -> np.ndarray:
            asked = index[0].indices(count)
            found = np.asarray(leaf[asked[0] : min(asked[1], len(leaf))])
            missing = len(range(*asked)) - len(found)
            return np.pad(found, [(0, missing), *[(0, 0)] * (found.ndim - 1)])

        return jax.make_array_from_callback((count, *leaf.shape[1:]), place, own)

    return jax.tree.map(spread, rows)


def shown_mesh() -> dict[str, Any]:
    """The mesh, for the record."""
    if not has_mesh():
        return {}
    return {"mesh": dict(jax.sharding.get_abstract_mesh().shape), "processes": jax.process_count()}


def by_one_device(function: Callable[[Any], Any], tree: Any) -> Any:
    """What a function makes of a tree where one device computes it, whatever the mesh."""
    if not has_mesh():
        return function(tree)
    whole = jax.device_get(everywhere(tree))
    own = jax.make_mesh((1,), MESH_AXES[:1], axis_types=(AxisType.Auto,), devices=jax.local_devices()[:1])
    with jax.set_mesh(own):
        return function(whole)


def is_first() -> bool:
    """Whether this is the process that writes the run."""
    return jax.process_index() == 0


def agreed(number: int) -> int:
    """The largest number that any process of the training has; a decision that all must take alike."""
    return number if jax.process_count() == 1 else int(_agreed(np.array([number], np.int32))[0])


def own_data(settings: Any) -> Dataset:
    """The data of a config; on several hosts each reads its own training rows, where the file allows it."""
    return load_settings(settings.data, told_by_first if jax.process_count() > 1 else None)


def told_by_first(make: Callable[[], Any]) -> Any:
    """What the first process finds, for all of them; what it refuses, all refuse. It must be fit for JSON."""
    text = _answer(make) if jax.process_index() == 0 else b""
    padded = np.zeros(agreed(len(text)), np.int32)
    padded[: len(text)] = list(text)
    found = json.loads(bytes(_agreed(padded).tolist()))
    if "refused" in found:
        raise InputError(found["refused"])
    return found["made"]


def _answer(make: Callable[[], Any]) -> bytes:
    try:
        return json.dumps({"made": make()}).encode()
    except InputError as error:
        return json.dumps({"refused": str(error)}).encode()


def _agreed(numbers: np.ndarray) -> np.ndarray:
    """The largest of each number that any process has."""
    mesh = jax.sharding.get_mesh()
    place = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    shape = (jax.device_count(), len(numbers))
    own = jax.make_array_from_callback(shape, place, lambda index: numbers[None])
    return np.asarray(_largest(own))


@jax.jit
def _largest(numbers: jax.Array) -> jax.Array:
    return placed(jnp.max(numbers, axis=0), None)
