"""Where arrays live: rows and units are split over a mesh of devices if there is one.

A mesh is set by `jax.set_mesh`, with axes called `rows` and `units`. What makes new arrays
(batches, random numbers, chains) says what their axes are; the compiler passes it on.
"""

import os

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
