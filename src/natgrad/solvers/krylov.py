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

import jax
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
    precondition = _deflating(deflation, mean[None])
    at = _start(join(gradient), precondition)
    for _ in range(iterations - 1):
        response, energy = _energy(at.direction, rows, curvature, damping)
        product = (curvature * response) @ rows.T + damping[:, None] * at.direction
        at = _advance(at, product, energy, precondition)
    _, energy = _energy(at.direction, rows, curvature, damping)  # the last product is not needed
    return split(at.solution + _length(at.power, energy)[:, None] * at.direction)


def _energy(
    direction: Vectors, rows: Float[Array, "side row"], curvature: Float[Array, "out row"], damping: Damping
) -> tuple[Float[Array, "out row"], Float[Array, " out"]]:
    """What a direction does to every logit, and its damped length in the metric."""
    response = direction @ rows
    length = (curvature * response * response).sum(axis=1)
    return response, length + damping * (direction * direction).sum(axis=1)


def _over_samples(factor: DualFactor, gradient: Layer, iterations: int) -> Layer:
    """The same in sample space, as a loop: its turns are cheap, compiling each of them is not."""
    root, damping = factor.root, factor.damping
    level = factor.inner.mean()
    precondition = _deflating(level / (damping + level * (root * root).sum(axis=1)), root)

    def turn(number: Array, at: Iterate) -> Iterate:
        del number
        product = root * ((root * at.direction) @ factor.inner) + damping[:, None] * at.direction
        return _advance(at, product, (at.direction * product).sum(axis=1), precondition)

    start = _start(root * factor.blocks.responses(gradient), precondition)
    return lift(factor, gradient, jax.lax.fori_loop(0, iterations, turn, start).solution)


class Iterate(NamedTuple):
    """Where conjugate gradients are; `power` is residual . preconditioned residual, unit by unit."""

    solution: Vectors
    residual: Vectors
    direction: Vectors
    power: Float[Array, " out"]


Precondition = Callable[[Vectors], tuple[Vectors, Float[Array, " out"]]]


def _deflating(strength: Float[Array, " out"], axis: Float[Array, "axes side"]) -> Precondition:
    """r -> r - strength (axis . r) axis with its power, for one axis for all units or one each."""

    def precondition(r: Vectors) -> tuple[Vectors, Array]:
        along = (r * axis).sum(axis=1)
        taken = strength * along
        return r - taken[:, None] * axis, (r * r).sum(axis=1) - taken * along

    return precondition


def _start(right: Vectors, precondition: Precondition) -> Iterate:
    return Iterate(jnp.zeros_like(right), right, *precondition(right))


def _advance(at: Iterate, product: Vectors, energy: Array, precondition: Precondition) -> Iterate:
    """One iteration, from the metric's product with the direction and their inner product."""
    step = _length(at.power, energy)[:, None]
    residual = at.residual - step * product
    corrected, power = precondition(residual)
    turned = corrected + _length(power, at.power)[:, None] * at.direction
    return Iterate(at.solution + step * at.direction, residual, turned, power)


def _length(above: Array, below: Array) -> Array:
    """A quotient that is finite where there is nothing left to do."""
    return above / jnp.where(below > 0, below, 1)
