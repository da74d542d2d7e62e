"""Where arrays live, and programs: rows and units are split over a mesh of devices if there is one.

A mesh is set by `jax.set_mesh`, with axes called `rows` and `units`. What makes new arrays
(batches, random numbers, chains) says what their axes are; the compiler passes it on. Compiled programs are
kept on disk, for the command line and for Python alike.
"""

import os
from pathlib import Path

import jax
from jax.sharding import PartitionSpec
from jaxtyping import Array


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


def memory_bytes() -> int:
    """The memory of this computer."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
