"""What products alone say of an operator: its matrix, and the mean of its diagonal."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad import tree
from natgrad.core import Model, Operator


def dense(operator: Operator) -> Float[Array, "parameter parameter"]:
    """The operator as a matrix, in the order of `ravel_pytree`: a product per parameter, for small models."""
    flat, unravel = ravel_pytree(operator.like)
    mv = operator.bind().mv
    column = lambda v: ravel_pytree(mv(unravel(v)))[0]  # noqa: E731
    return jax.vmap(column, out_axes=1)(jnp.eye(flat.size, dtype=flat.dtype))


def mean_diagonal(key: PRNGKeyArray, mv: Callable[[Model], Model], like: Model) -> Float[Array, ""]:
    """An unbiased estimate of trace / size from one product with random signs."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    signs: list[Array] = [
        jax.random.rademacher(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)
    ]
    probe = jax.tree.unflatten(structure, signs)
    return tree.vdot(probe, mv(probe)) / sum(leaf.size for leaf in leaves)
