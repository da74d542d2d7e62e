"""Tiny machines that can be enumerated."""

import jax

from natgrad.models.bernoulli import BINARY, SIGNED
from natgrad.models.helmholtz import helmholtz

CODINGS = {"signed": SIGNED, "binary": BINARY}
SIZES = {"one": (3, 2), "two": (4, 3, 2), "three": (3, 2, 2, 1)}


def machine(sizes=(4, 3, 2), coding=SIGNED, seed=0, spread=0.7):
    """A machine with random biases too, so that nothing is special."""
    model = helmholtz(jax.random.key(seed), sizes, coding=coding)
    leaves, structure = jax.tree.flatten(model)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    noisy = [leaf + spread * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, noisy)
