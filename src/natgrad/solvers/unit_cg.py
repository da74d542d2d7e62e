"""Conjugate gradients over all units of a network at once: matrix-free, no LAPACK, nothing stored.

Every unit runs its own iteration (its own step lengths), all in the same matrix products. With few rows
it runs in sample space (`natgrad.solvers.samples`), with many over parameters, as follows. One
eigenvalue, that of the mean input, stands far above the others; a rank-one preconditioner takes
it out:

    M_j = (a + d_j b) I + d_j m m^T,     m the mean input, d_j the unit's total curvature,

with b the mean of the remaining eigenvalues per unit of curvature.

`jax.scipy.sparse.linalg.cg` and `lineax.CG` solve one system, with one step length for the whole right-hand
side, in a `while_loop` that tests a residual. Over all units they need a `vmap`, whose loop runs until the
slowest unit is done, and one loop for every shape of a layer. Here the number of iterations is fixed, a
short loop is unrolled, no residual is tested, and over parameters the last iteration needs only half a
product. What remains of the right-hand side is not returned; `natgrad.solvers.truncated` returns it.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.layers import stacks
from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import Blocks, UnitBlocks, join, split
from natgrad.solvers.samples import quotient, repeat_turn, solve_in_samples
from natgrad.solvers.units import LayerSolution, LayerSystem, UnitDamping, UnitSolver, needs_rows

_FEW_ROWS = 128  # a product of rows with rows costs next to nothing
Vectors = Float[Array, "out side"]


class Primal(NamedTuple):
    """What an iteration over parameters needs: the rows with their bias, and the deflated direction."""

    rows: Float[Array, "side row"]
    curvature: Float[Array, "out row"]
    damping: UnitDamping
    mean: Float[Array, " side"]
    deflation: Float[Array, " out"]


def unit_conjugate_gradient(iterations: int = 4) -> UnitSolver:
    """A fixed number of iterations for every layer."""

    def prepare(blocks: Blocks, damping: UnitDamping) -> tuple[()]:
        del blocks, damping
        return ()

    def solve(systems: Sequence[LayerSystem], gradients: Sequence[Layer]) -> list[LayerSolution]:
        found: dict[int, LayerSolution] = {}
        for rows, members in _by_rows(systems).items():
            some = [systems[number] for number in members], [gradients[number] for number in members]
            inner = solve_in_samples if rows else _solve_over_parameters
            found |= zip(members, inner(*some, iterations), strict=True)
        return [found[number] for number in range(len(systems))]

    return UnitSolver("cg", False, True, prepare, solve)


def _by_rows(systems: Sequence[LayerSystem]) -> dict[int, list[int]]:
    """The layers for every number of rows in sample space; 0 stands for those over parameters."""
    groups = defaultdict(list)
    every = map(needs_rows, [system.blocks for system in systems], itertools.repeat("cg"))
    for number, (inputs, rows) in enumerate([blocks.inputs.shape for blocks in every]):
        groups[rows if rows <= max(_FEW_ROWS, 2 * (inputs + 1)) else 0].append(number)
    return groups


def _solve_over_parameters(
    systems: Sequence[LayerSystem], gradients: Sequence[Layer], iterations: int
) -> list[LayerSolution]:
    def layer(system: LayerSystem, gradient: Layer) -> Layer:
        damping = jnp.where(system.damping > 0, system.damping, 1)  # zero: a unit that fills up a stack
        primal = _primal(needs_rows(system.blocks, "cg"), damping)
        return _over_parameters(primal, gradient, iterations)

    found = stacks.map_stacked(layer, tuple(systems), tuple(gradients))
    return [LayerSolution(value, iterations) for value in found]


def _primal(blocks: UnitBlocks, damping: UnitDamping) -> Primal:
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
    precondition = _deflating(deflation, mean)

    def turn(at: ParameterIterate) -> ParameterIterate:
        response, energy = _energy(at.direction, rows, curvature, damping)
        product = (curvature * response) @ rows.T + damping[:, None] * at.direction
        return _advance(at, product, _step(at, energy, least), precondition)

    start = _start(join(gradient), precondition)
    least = jnp.finfo(start.power.dtype).eps ** 2 * start.power
    at = repeat_turn(iterations - 1, turn, start)
    _, energy = _energy(at.direction, rows, curvature, damping)  # the last product is not needed
    return split(at.solution + _step(at, energy, least) * at.direction)


def _energy(
    direction: Vectors,
    rows: Float[Array, "side row"],
    curvature: Float[Array, "out row"],
    damping: UnitDamping,
) -> tuple[Float[Array, "out row"], Float[Array, " out"]]:
    """What a direction does to every logit, and its damped length in the metric."""
    response = direction @ rows
    length = (curvature * response * response).sum(axis=1)
    return response, length + damping * (direction * direction).sum(axis=1)


class ParameterIterate(NamedTuple):
    """Where conjugate gradients are; `power` is residual . preconditioned residual, unit by unit."""

    solution: Vectors
    residual: Vectors
    direction: Vectors
    power: Float[Array, " out"]


Precondition = Callable[[Vectors], tuple[Vectors, Float[Array, " out"]]]


def _deflating(strength: Float[Array, " out"], axis: Float[Array, " side"]) -> Precondition:
    """r -> r - strength (axis . r) axis with its power."""

    def precondition(r: Vectors) -> tuple[Vectors, Array]:
        along = (r * axis).sum(axis=1)
        taken = strength * along
        return r - taken[:, None] * axis, (r * r).sum(axis=1) - taken * along

    return precondition


def _start(right: Vectors, precondition: Precondition) -> ParameterIterate:
    return ParameterIterate(jnp.zeros_like(right), right, *precondition(right))


def _step(at: ParameterIterate, energy: Array, least: Array) -> Float[Array, "out 1"]:
    """How far to go; a unit with nothing left but rounding stays: from there on its iterates would grow."""
    return quotient(jnp.where(at.power < least, 0, at.power), energy)[:, None]


def _advance(
    at: ParameterIterate, product: Vectors, step: Float[Array, "out 1"], precondition: Precondition
) -> ParameterIterate:
    """One iteration, from the metric's product with the direction and the length of the step."""
    residual = at.residual - step * product
    corrected, power = precondition(residual)
    turned = corrected + quotient(power, at.power)[:, None] * at.direction
    return ParameterIterate(at.solution + step * at.direction, residual, turned, power)
