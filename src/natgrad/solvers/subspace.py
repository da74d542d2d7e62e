"""Krylov subspace descent: minimize the loss itself, not its model, in a small subspace [vinyals2012].

The subspace is spanned by g, F g, F^2 g, ... and the last direction. Coordinates in which F is the
identity make it round, and a few iterations of BFGS in them find the step, usually on other rows than
those of the gradient. No damping and no length are needed; the basis takes (size + 1) times the
parameters' memory. Conjugate gradients (`natgrad.solvers.truncated`) search the same subspace, without the
last direction, for the minimum of the quadratic model, and keep no basis.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.optimize import minimize
from jaxtyping import Array, Float

from natgrad import tree
from natgrad.core import Model
from natgrad.errors import InputError
from natgrad.solvers.results import CONVERGED, FAILED
from natgrad.solvers.whole import Found, System

FLOOR = 1e-4  # eigenvalues of the projected metric, relative to the largest, are raised to this [vinyals2012]
Descend = Callable[[System, Model, Model | None, Callable[[Model], Array]], Found]


class Basis(NamedTuple):
    """Orthonormal vectors, [vector, ...] per leaf, and the products of the damped operator with them."""

    vectors: Any
    products: Any


def subspace_descent(size: int = 20, *, iterations: int = 30) -> Descend:
    """Minimize `value(step)` over steps in the subspace; the loss is never made larger.

    `value` is the loss after subtracting a step. The returned residual is that of the linear system, so
    that a step can be checked like any other.
    """
    if size < 1:
        raise InputError(f"a subspace needs at least one direction, got {size}")

    def descend(
        system: System, gradient: Model, last: Model | None, value: Callable[[Model], Array]
    ) -> Found:
        basis = krylov_basis(system, gradient, last, size)
        root = _whitening(basis)
        combine = lambda stack, at: jax.tree.map(lambda leaf: jnp.tensordot(root @ at, leaf, 1), stack)  # noqa: E731
        start = jnp.zeros((root.shape[1],), root.dtype)
        along = lambda at: value(combine(basis.vectors, at))  # noqa: E731
        found = minimize(along, start, method="BFGS", options={"maxiter": iterations})
        better = found.fun < along(start)  # also false for nan
        at = jnp.where(better, found.x, start)
        residual = tree.subtract(gradient, combine(basis.products, at))
        result = jnp.where(jnp.isfinite(found.fun), CONVERGED, FAILED)
        return Found(combine(basis.vectors, at), residual, jnp.asarray(found.nit, jnp.int32), result)

    return descend


def krylov_basis(system: System, gradient: Model, last: Model | None, size: int) -> Basis:
    """An orthonormal basis of g, A g, ..., A^{size-1} g and the last direction; one product per vector.

    A vector that adds nothing to those before it is zero.
    """
    count = size if last is None else size + 1
    empty = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), gradient)

    def put(basis: Basis, place: Any, raw: Model) -> tuple[Basis, Model]:
        vector = _orthonormal(basis.vectors, raw)
        product = system.mv(vector)
        store = lambda stack, leaf: stack.at[place].set(leaf)  # noqa: E731
        return Basis(
            *(jax.tree.map(store, *pair) for pair in ((basis.vectors, vector), (basis.products, product)))
        ), product

    body = lambda place, carry: put(carry[0], place, carry[1])  # noqa: E731
    basis, _ = jax.lax.fori_loop(0, size, body, (Basis(empty, empty), gradient))
    return basis if last is None else put(basis, size, last)[0]


def _orthonormal(vectors: Any, raw: Model) -> Model:
    """What is new in a vector, of length one; the projection is done twice for the sake of rounding."""
    before = tree.norm(raw)
    for _ in range(2):
        shares = jax.tree.map(lambda stack, leaf: jnp.tensordot(stack, leaf, leaf.ndim), vectors, raw)
        total = jax.tree.reduce(jnp.add, shares)
        along = jax.tree.map(functools.partial(jnp.tensordot, total, axes=1), vectors)
        raw = tree.subtract(raw, along)
    length = tree.norm(raw)
    new = length > 1e3 * jnp.finfo(length.dtype).eps * before
    return tree.scale(jnp.where(new, 1 / jnp.where(new, length, 1), 0), raw)


def _whitening(basis: Basis) -> Float[Array, "vector coordinate"]:
    """C with C^T (V^T A V) C = 1, small eigenvalues raised; by one small eigen-decomposition."""
    inner = jax.tree.map(
        lambda v, p: v.reshape(v.shape[0], -1) @ p.reshape(p.shape[0], -1).T, basis.vectors, basis.products
    )
    projected = jax.tree.reduce(jnp.add, inner)
    values, columns = jnp.linalg.eigh((projected + projected.T) / 2)
    values = jnp.maximum(jnp.abs(values), FLOOR * jnp.abs(values).max())
    return columns / jnp.sqrt(jnp.where(values > 0, values, 1))
