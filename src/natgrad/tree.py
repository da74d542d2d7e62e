"""The little pytree arithmetic we need, and the decorator that makes a model a pytree."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_T = TypeVar("_T")
_FEW = 2**14  # numbers of a leaf that is copied next to others


def static(**options: Any) -> Any:
    """A field that is part of the tree's structure, not one of its leaves."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def pytree(cls: type[_T]) -> type[_T]:
    """Make a class a frozen dataclass whose fields are leaves, but for those marked `static`."""
    frozen: Any = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(frozen)
    meta = [field.name for field in fields if field.metadata.get("static")]
    data = [field.name for field in fields if field.name not in meta]
    return jax.tree_util.register_dataclass(frozen, data_fields=data, meta_fields=meta)


def vdot(left: _T, right: _T) -> Float[Array, ""]:
    """The inner product of two trees of the same structure; small leaves go together, in one product.

    Not on a mesh of devices, which would have to send them to each other.
    """
    pairs = list(zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))
    most = _FEW if jax.sharding.get_abstract_mesh().empty else -1
    few = [pair for pair in pairs if pair[0].size <= most]
    products = [(a * b).sum() if most < 0 else jnp.vdot(a, b) for a, b in pairs if a.size > most]
    if few:
        one, two = (jnp.concatenate([leaf.ravel() for leaf in side]) for side in zip(*few, strict=True))
        products.append(jnp.vdot(one, two))
    return functools.reduce(jnp.add, products) if products else jnp.zeros(())


def whole(tree: Any) -> Any:
    """A tree that is known in factors, and says so by a method `whole`, as itself; any other as it is."""
    return tree.whole() if hasattr(tree, "whole") else tree


def norm(tree: Any) -> Float[Array, ""]:
    """The Euclidean length of all leaves together."""
    return jnp.sqrt(vdot(tree, tree))


def scale(factor: Any, tree: _T) -> _T:
    """Every leaf times a number; several numbers are a tree prefix: each multiplies all leaves below it."""
    return jax.tree.map(lambda number, part: jax.tree.map(lambda leaf: number * leaf, part), factor, tree)


def add(left: _T, right: _T) -> _T:
    """The sum, leaf by leaf."""
    return jax.tree.map(jnp.add, left, right)


def subtract(left: _T, right: _T) -> _T:
    """The difference, leaf by leaf."""
    return jax.tree.map(jnp.subtract, left, right)


def axpy(factor: Any, left: _T, right: _T) -> _T:
    """factor * left + right, leaf by leaf, in every leaf's own precision; the factor as in `scale`."""

    def part(number: Any, one: Any, two: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.asarray(number).astype(a.dtype) * a + b, one, two)

    return jax.tree.map(part, factor, left, right)


def select(condition: Any, yes: _T, no: _T) -> _T:
    """`yes` where the scalar condition holds, otherwise `no`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def zeros(tree: _T) -> _T:
    """A tree of zeros with the shapes of another, which may hold shapes only."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), tree)


@jax.jit
def copied(tree: _T) -> _T:
    """A copy of every leaf, so that the tree stays when the copy is donated."""
    return jax.tree.map(jnp.copy, tree)


def blend(decay: Any, old: _T, new: _T) -> _T:
    """decay * old + (1 - decay) * new, leaf by leaf."""
    return jax.tree.map(lambda a, b: decay * a + (1 - decay) * b, old, new)


def in_structure(template: _T, tree: Any) -> _T:
    """The leaves of a tree in the structure of another, whose static parts may be other objects."""
    return jax.tree.unflatten(jax.tree.structure(template), jax.tree.leaves(tree))


def map_layers(function: Callable[..., _T], *rest: tuple[Any, ...]) -> tuple[_T, ...]:
    """`map` over layers, of equal number, as a tuple."""
    return tuple(itertools.starmap(function, zip(*rest, strict=True)))
