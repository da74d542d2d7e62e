"""Where arrays live, and programs: rows and units are split over a mesh of devices if there is one.

A mesh is set by `jax.set_mesh`, with axes called `rows` and `units`. What makes new arrays
(batches, random numbers, chains) says what their axes are; the compiler passes it on. Compiled programs are
kept on disk, for the command line and for Python alike. `surroundings` says what a run ran on.
"""

import functools
import os
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float

_T = TypeVar("_T")
_U = TypeVar("_U")
LIMITS = [Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")]


def placed(array: Array, *axes: str | None) -> Array:
    """The array, split over the mesh's axes of these names; without a mesh it is left as it is.

    Axes that the mesh lacks, or whose length it does not divide, are not split.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return array
    split = [_fits(mesh.shape, name, length) for name, length in zip(axes, array.shape, strict=True)]
    return jax.lax.with_sharding_constraint(array, PartitionSpec(*split))


def _fits(mesh: dict[str, int], name: str | None, length: int) -> str | None:
    return name if name in mesh and length % mesh[name] == 0 else None


def parts(name: str) -> int:
    """How many devices an axis of the mesh has; one where there is no such axis, or no mesh."""
    return dict(jax.sharding.get_abstract_mesh().shape).get(name, 1)


def row_products(rows: Float[Array, "row column"]) -> Float[Array, "row row"]:
    """The products of rows with each other; on a mesh split by columns, so that only they are summed up."""
    if not has_mesh():
        return rows @ rows.T
    missing = -rows.shape[1] % parts("rows")
    columns = placed(jnp.pad(rows, ((0, 0), (0, missing))), None, "rows")
    return placed(columns @ columns.T, None, None)


def by_own_rows(make: Callable[[_T, Any], Array], whole: _T, rows: Any) -> Array:
    """What is made of rows, each for itself, and of numbers that all need: a device makes that of its rows.

    The compiler would split it by the numbers too, where these are split, and gather what it made.
    """
    number = len(jax.tree.leaves(rows)[0])
    if not has_mesh() or number % parts("rows"):
        return make(whole, rows)
    split = PartitionSpec("rows" if parts("rows") > 1 else None)
    apart = jax.shard_map(  # unchecked: else derivatives by the whole numbers would be summed over devices
        make, in_specs=(PartitionSpec(), split), out_specs=split, check_vma=False
    )
    found: Array = apart(whole, rows)
    return found


def in_one_message(network: Callable[[_T, Any], Array]) -> Callable[[_T, Any], Array]:
    """A network from (parameters, rows) to as many rows whose derivatives are summed over devices at once.

    It gets its parameters as one vector; else every array of them is sent by itself, even where the compiler
    makes one operation of them.
    """

    @functools.wraps(network)
    def own(parameters: _T, rows: Any) -> Array:
        if not _split_by_rows_alone() or len({leaf.dtype for leaf in jax.tree.leaves(parameters)}) > 1:
            return network(parameters, rows)
        numbers, back = ravel_pytree(parameters)
        return by_own_rows(lambda numbers, rows: network(back(numbers), rows), numbers, rows)

    return own


def _split_by_rows_alone() -> bool:
    return parts("rows") > 1 and parts("units") == 1


def mean_over_rows(make: Callable[[_T, Any], _U], whole: _T, rows: Any, number: int, *, axis: int = -2) -> _U:
    """The mean over rows that a function makes of numbers and of arrays with rows along an axis.

    On a mesh of rows every device makes that of its own rows, and all of it is summed up as one array: else
    every array is sent by itself, and to send an array costs more than the bytes that it has.
    """
    if not _split_by_rows_alone() or number % parts("rows"):
        return make(whole, rows)

    def apart(whole: _T, rows: Any) -> _U:
        numbers, back = ravel_pytree(make(whole, rows))
        found: _U = back(jax.lax.pmean(numbers, "rows"))
        return found

    split = jax.tree.map(lambda leaf: _along(axis, leaf.shape), rows)
    given = (PartitionSpec(), split)
    together = jax.shard_map(apart, in_specs=given, out_specs=PartitionSpec(), check_vma=False)
    mean: _U = together(whole, rows)
    return mean


def _along(axis: int, shape: tuple[int, ...]) -> PartitionSpec:
    """Where an array lives whose rows are split; one that has a single row for all of them is whole."""
    split: list[str | None] = [None] * len(shape)
    split[axis] = "rows" if shape[axis] > 1 else None
    return PartitionSpec(*split)


def gathered(arrays: Sequence[Float[Array, "_ row"]]) -> list[Array]:
    """Arrays whose rows are split, whole on every device; those of as many rows are sent in one message."""
    found = list(arrays)
    for kind in dict.fromkeys((array.shape[1], array.dtype) for array in arrays):  # ordered
        same = [i for i, array in enumerate(arrays) if (array.shape[1], array.dtype) == kind]
        own = jnp.concatenate([placed(arrays[i], None, "rows") for i in same])
        ends = [sum(len(arrays[i]) for i in same[:count]) for count in range(1, len(same))]
        for i, part in zip(same, jnp.split(placed(own, None, None), ends), strict=True):
            found[i] = part
    return found


def evenly_spaced(array: Array, axis: int, count: int) -> Array:
    """So many of the rows along an axis: of all devices as many, where the numbers allow it."""
    length = array.shape[axis]
    if length % count:
        return jax.lax.slice_in_dim(array, 0, count, axis=axis)
    apart = array.reshape(*array.shape[:axis], count, length // count, *array.shape[axis + 1 :])
    return jax.lax.index_in_dim(apart, 0, axis + 1, keepdims=False)


def has_mesh() -> bool:
    """Whether a mesh is set."""
    return not jax.sharding.get_abstract_mesh().empty


def by_first_axis(tree: _T, axis: str) -> _T:
    """Every array of a tree split by its first axis, where the mesh divides it."""
    return jax.tree.map(lambda leaf: placed(leaf, *(axis, *(None,) * (leaf.ndim - 1))[: leaf.ndim]), tree)


def everywhere(tree: _T) -> _T:
    """The same arrays, whole on every device: how what is split is read, saved or shown."""
    if not has_mesh():
        return tree
    return _whole(tree)


@jax.jit
def _whole(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: placed(leaf, *(None,) * leaf.ndim), tree)


def sharding_of(array: Any) -> NamedSharding | None:
    """Where an array, or a shape that says so, lives on the mesh; whole everywhere if it does not say."""
    if not has_mesh():
        return None
    found = getattr(array, "sharding", None)
    return (
        found if isinstance(found, NamedSharding) else NamedSharding(jax.sharding.get_mesh(), PartitionSpec())
    )


def memory_bytes() -> int:
    """The memory of this computer, or as much of it as the container has that natgrad runs in."""
    limits = [path.read_text().strip() for path in LIMITS if path.is_file()]
    held = [int(limit) for limit in limits if limit.isdecimal()]  # "max" is none
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *held])


def keep_programs() -> None:
    """Let JAX keep compiled programs in natgrad's cache, unless JAX_COMPILATION_CACHE_DIR says where.

    Short compilations are kept too: many of them are most of a second start.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    jax.config.update("jax_compilation_cache_dir", str(program_folder()))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def program_folder() -> Path:
    """Where compiled programs are: below NATGRAD_CACHE, or in the user's cache."""
    chosen, usual = os.environ.get("NATGRAD_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return (Path(chosen) if chosen else Path(usual or Path.home() / ".cache") / "natgrad") / "xla"


def surroundings() -> dict[str, Any]:
    """Versions and machine, as plain JSON."""
    names = ("natgrad", "jax", "jaxlib", "optax", "numpy")
    return {
        "versions": {"python": platform.python_version()} | {name: version(name) for name in names},
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "devices": [f"{device.platform}:{device.device_kind}" for device in jax.devices()],
        "x64": jax.numpy.zeros(()).dtype == jax.numpy.float64,
    }
