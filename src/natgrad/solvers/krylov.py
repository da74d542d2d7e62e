"""Conjugate gradients over all units of a layer at once: matrix-free, no LAPACK, nothing stored.

Every unit runs its own iteration (its own step lengths), all in the same matrix products. One
eigenvalue, that of the mean input, stands far above the others; a rank-one preconditioner takes
it out:

    M_j = (a + d_j b) I + d_j m m^T,     m the mean input, d_j the unit's total curvature,

with b the mean of the remaining eigenvalues per unit of curvature. Where there are fewer rows than
inputs the same iteration runs in sample space, on vectors of one number per row.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.metrics.blocks import Blocks, UnitBlocks, dot, scaled
from natgrad.models.bernoulli import Layer
from natgrad.solvers.contract import Damping, Solution, Solver, needs_rows
from natgrad.solvers.dual import DualFactor, gram, lift

V = TypeVar("V", Layer, Array)


class Primal(NamedTuple):
    """What an iteration over parameters needs: the rows and the deflated direction."""

    blocks: UnitBlocks
    damping: Damping
    mean: Layer
    deflation: Float[Array, " out"]


def conjugate_gradient(iterations: int = 4) -> Solver:
    """A fixed number of preconditioned iterations for every layer."""

    def solve(factor: Primal | DualFactor, gradient: Layer) -> Solution:
        if isinstance(factor, Primal):
            return Solution(_over_parameters(factor, gradient, iterations), iterations)
        return Solution(_over_samples(factor, gradient, 2 * iterations), 2 * iterations)

    return Solver("cg", False, _prepare, solve)


def _prepare(blocks: Blocks, damping: Damping) -> Primal | DualFactor:
    rows = needs_rows(blocks, "cg")
    if rows.inputs.shape[1] < rows.size:
        return DualFactor(rows, jnp.sqrt(rows.curvature), gram(rows), damping)
    total = rows.curvature.sum(axis=1)
    shared = rows.curvature.sum(axis=0) / total.sum()
    mean = rows.inputs @ shared
    length = mean @ mean + 1
    square = (rows.inputs**2).sum(axis=0) @ shared + 1
    bulk = jnp.maximum(square - length, 0) / rows.size
    deflation = total / (damping + total * (bulk + length))
    return Primal(rows, damping, Layer(mean[None], jnp.ones_like(mean[:1])), deflation)


def _over_parameters(factor: Primal, gradient: Layer, iterations: int) -> Layer:
    mean = factor.mean

    def precondition(r: Layer) -> Layer:
        along = factor.deflation * (r.weight @ mean.weight[0] + r.bias)
        return Layer(r.weight - along[:, None] * mean.weight, r.bias - along)

    def curve(p: Layer) -> tuple[Array, Callable[[], Layer]]:
        response = factor.blocks.responses(p)
        bent = factor.blocks.curvature * response
        energy = (bent * response).sum(axis=1) + factor.damping * dot(p, p)
        return energy, lambda: _add(factor.blocks.gather(bent), factor.damping, p)

    return _iterate(curve, precondition, dot, gradient, iterations)


def _over_samples(factor: DualFactor, gradient: Layer, iterations: int) -> Layer:
    root, damping = factor.root, factor.damping
    level = factor.inner.mean()
    deflation = level / (damping + level * (root**2).sum(axis=1))

    def precondition(r: Array) -> Array:
        return r - (deflation * (root * r).sum(axis=1))[:, None] * root

    def curve(p: Array) -> tuple[Array, Callable[[], Array]]:
        product = root * ((root * p) @ factor.inner) + damping[:, None] * p
        return (p * product).sum(axis=1), lambda: product

    inner = _iterate(curve, precondition, _row_dot, root * factor.blocks.responses(gradient), iterations)
    return lift(factor, gradient, inner)


def _iterate(
    curve: Callable[[V], tuple[Array, Callable[[], V]]],
    precondition: Callable[[V], V],
    inner: Callable[[V, V], Array],
    right: V,
    iterations: int,
) -> V:
    """Preconditioned conjugate gradients; the last iteration needs no product, only its step length."""
    solution = jax.tree.map(jnp.zeros_like, right)
    residual = right
    direction = preconditioned = precondition(right)
    strength = inner(residual, preconditioned)
    for turn in range(iterations):
        energy, product = curve(direction)
        step = strength / jnp.where(energy > 0, energy, 1)
        solution = _add(solution, step, direction)
        if turn + 1 == iterations:
            break
        residual = _add(residual, -step, product())
        preconditioned = precondition(residual)
        renewed = inner(residual, preconditioned)
        direction = _add(preconditioned, renewed / jnp.where(strength > 0, strength, 1), direction)
        strength = renewed
    return solution


def _add(left: V, factor: Array, right: V) -> V:
    """left + factor * right, a factor per unit."""
    if isinstance(right, Layer):
        return jax.tree.map(jnp.add, left, scaled(factor, right))
    return left + factor[:, None] * right


def _row_dot(left: Array, right: Array) -> Array:
    return (left * right).sum(axis=1)
