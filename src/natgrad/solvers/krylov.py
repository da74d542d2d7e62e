"""Conjugate gradients over all units of a layer at once: matrix-free, no LAPACK, nothing stored.

Every unit runs its own iteration (its own step lengths), all in the same matrix products. One
eigenvalue, that of the mean input, stands far above the others; a rank-one preconditioner takes
it out:

    M_j = (a + d_j b) I + d_j m m^T,     m the mean input, d_j the unit's total curvature,

with b the mean of the remaining eigenvalues per unit of curvature. Where there are fewer rows than
inputs the same iteration runs in sample space, on vectors of one number per row.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.metrics.blocks import Blocks, UnitBlocks, join, split
from natgrad.models.bernoulli import Layer
from natgrad.solvers.contract import Damping, Solution, Solver, needs_rows
from natgrad.solvers.dual import DualFactor, gram, lift

Vectors = Float[Array, "out side"]


class Primal(NamedTuple):
    """What an iteration over parameters needs: the rows with their bias, and the deflated direction."""

    rows: Float[Array, "side row"]
    curvature: Float[Array, "out row"]
    damping: Damping
    mean: Float[Array, " side"]
    deflation: Float[Array, " out"]


def conjugate_gradient(iterations: int = 3) -> Solver:
    """A fixed number of preconditioned iterations for every layer; twice as many in sample space."""

    def solve(factor: Primal | DualFactor, gradient: Layer) -> Solution:
        if isinstance(factor, Primal):
            return Solution(_over_parameters(factor, gradient, iterations), iterations)
        return Solution(_over_samples(factor, gradient, 2 * iterations), 2 * iterations)

    return Solver("cg", False, _prepare, solve)


def _prepare(blocks: Blocks, damping: Damping) -> Primal | DualFactor:
    found = needs_rows(blocks, "cg")
    if found.inputs.shape[1] < found.size:
        return DualFactor(found, jnp.sqrt(found.curvature), gram(found), damping)
    return _primal(found, damping)


def _primal(blocks: UnitBlocks, damping: Damping) -> Primal:
    rows = jnp.concatenate([blocks.inputs, jnp.ones_like(blocks.inputs[:1])])
    total = blocks.curvature.sum(axis=1)
    shared = blocks.curvature.sum(axis=0) / total.sum()
    mean = rows @ shared
    length = mean @ mean
    bulk = jnp.maximum((rows**2).sum(axis=0) @ shared - length, 0) / blocks.size
    deflation = total / (damping + total * (bulk + length))
    return Primal(rows, blocks.curvature, damping, mean, deflation)


def _over_parameters(factor: Primal, gradient: Layer, iterations: int) -> Layer:
    rows, curvature, damping, mean, deflation = factor

    def curve(p: Vectors) -> tuple[Array, Callable[[], Vectors]]:
        response = p @ rows
        bent = curvature * response
        energy = (bent * response).sum(axis=1) + damping * (p * p).sum(axis=1)
        return energy, lambda: bent @ rows.T + damping[:, None] * p

    return split(_iterate(curve, Deflation(deflation, mean[None]), join(gradient), iterations))


def _over_samples(factor: DualFactor, gradient: Layer, iterations: int) -> Layer:
    root, damping = factor.root, factor.damping
    level = factor.inner.mean()
    deflation = level / (damping + level * (root * root).sum(axis=1))

    def curve(p: Vectors) -> tuple[Array, Callable[[], Vectors]]:
        product = root * ((root * p) @ factor.inner) + damping[:, None] * p
        return (p * product).sum(axis=1), lambda: product

    seen = root * factor.blocks.responses(gradient)
    return lift(factor, gradient, _iterate(curve, Deflation(deflation, root), seen, iterations))


class Deflation(NamedTuple):
    """A preconditioner r -> r - strength (axis . r) axis, with one axis for all units or one each."""

    strength: Float[Array, " out"]
    axis: Float[Array, "axes side"]


def _iterate(
    curve: Callable[[Vectors], tuple[Array, Callable[[], Vectors]]],
    deflation: Deflation,
    right: Vectors,
    iterations: int,
) -> Vectors:
    """Preconditioned conjugate gradients; the last iteration needs no product, only its step length."""
    strength, axis = deflation

    def precondition(r: Vectors) -> tuple[Vectors, Array]:
        along = (r * axis).sum(axis=1)
        taken = strength * along
        return r - taken[:, None] * axis, (r * r).sum(axis=1) - taken * along

    solution, residual = jnp.zeros_like(right), right
    direction, power = precondition(right)
    for turn in range(iterations):
        energy, product = curve(direction)
        step = power / jnp.where(energy > 0, energy, 1)
        solution = solution + step[:, None] * direction
        if turn + 1 == iterations:
            break
        residual = residual - step[:, None] * product()
        corrected, renewed = precondition(residual)
        direction = corrected + (renewed / jnp.where(power > 0, power, 1))[:, None] * direction
        power = renewed
    return solution
