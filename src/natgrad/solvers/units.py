"""Solve a layered metric unit by unit: every layer by a solver of its own, all layers of one solver together.

    (damping I + F_j) x_j = g_j      for every unit j of a layer

`UnitSolver` is the contract of a solver of layers, `per_layer` makes a solver of a whole model, or of a part
of it, from a choice among them. The damping is a number per unit. Layers are solved together, since a solver
may have to do less for all of them than for each.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natgrad import tree
from natgrad.core import DampingStrength, Factor, Model, Solution, Solver
from natgrad.devices import by_first_axis, has_mesh
from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import Blocks, UnitBlocks
from natgrad.metrics.layered import LayeredFisher, nodes
from natgrad.solvers.results import CONVERGED

UnitDamping = Float[Array, " out"]


class LayerSystem(NamedTuple):
    """The system of one layer: its blocks, its damping, and what the solver prepared for it."""

    blocks: Blocks
    damping: UnitDamping
    factor: Any


class LayerSolution(NamedTuple):
    """The solution of one layer, its iterations (0: a direct method), and x^T F x where that is free."""

    value: Layer
    iterations: Int[Array, ""] | int
    curvature: Float[Array, ""] | None = None


class UnitSolver(NamedTuple):
    """A way to solve layers.

    Attributes:
        name: for the reader.
        lapack: whether `prepare` calls LAPACK.
        exact: whether a solution fulfills its equation, or errs at right angles to itself.
        prepare: from the blocks of a layer and its damping to a factor.
        solve: all layers that have this solver.
        place: where a factor's arrays live on a mesh: by default split by units, which come first in each.
    """

    name: str
    lapack: bool
    exact: bool
    prepare: Callable[[Blocks, UnitDamping], Any]
    solve: Callable[[Sequence[LayerSystem], Sequence[Layer]], list[LayerSolution]]
    place: Callable[[Any], Any] = lambda factor: by_first_axis(factor, "units")


Choice = Callable[[Blocks], UnitSolver]


class LayerFactors(NamedTuple):
    """A layered operator ready to be solved: its damping as it was given, and a factor for every node."""

    operator: LayeredFisher
    damping: DampingStrength
    factors: tuple[Any, ...]


def per_layer(choose: Choice) -> Solver:
    """The solver that a choice takes for every layer; parameters of their own are divided by their metric."""

    def prepare(operator: LayeredFisher, damping: DampingStrength, after: Any) -> tuple[LayerFactors, Any]:
        operator = operator.gathered() if has_mesh() else operator
        factors, damped = [], operator.damped(damping)
        for solver, (block, a) in zip(_chosen(choose, damped), damped, strict=True):
            found, after = ((), after) if solver is None else _prepared(solver, block, a, after)
            factors.append(found)
        return place(LayerFactors(operator, damping, tuple(factors))), after

    def place(factor: LayerFactors) -> LayerFactors:
        if not has_mesh():
            return factor
        operator, chosen = factor.operator.placed(), _chosen(choose, factor.operator.damped(0.0))
        pairs = zip(chosen, factor.factors, strict=True)
        own = tuple(() if solver is None else solver.place(found) for solver, found in pairs)
        return LayerFactors(operator, factor.damping, own)

    def solve(factor: LayerFactors, gradient: Model, guess: Model | None) -> Solution:
        del guess
        rights = nodes(by_first_axis(gradient, "units"))
        damped = factor.operator.damped(factor.damping)
        systems = [LayerSystem(*pair, own) for pair, own in zip(damped, factor.factors, strict=True)]
        layers = {i: solver for i, solver in enumerate(_chosen(choose, damped)) if solver is not None}
        some = solve_layers([*layers.values()], [systems[i] for i in layers], [rights[i] for i in layers])
        found = dict(zip(layers, some, strict=True))
        values, lengths = [], []
        for i, (right, (block, a)) in enumerate(zip(rights, damped, strict=True)):
            if i in found:
                values.append(found[i].value)
                lengths.append(_curvature(layers[i], systems[i], right, found[i]))
            else:
                values.append(right / (a + block))
                lengths.append(_length(block, values[i]))
        return _solution(gradient, values, lengths, [solved.iterations for solved in some])

    return Solver(prepare, solve, place)


def names_of(operator: LayeredFisher, choose: Choice) -> list[str]:
    """The solver that a choice takes for every layer; shapes suffice."""
    layers = [node for node in nodes(operator.blocks) if isinstance(node, Blocks)]
    return [solver.name for solver in map(choose, layers)]


def solve_layers(
    solvers: Sequence[UnitSolver], systems: Sequence[LayerSystem], gradients: Sequence[Layer]
) -> list[LayerSolution]:
    """Every layer by its own solver, those of the same solver together."""
    found: dict[int, LayerSolution] = {}
    for name in {solver.name: None for solver in solvers}:
        members = [number for number, solver in enumerate(solvers) if solver.name == name]
        solve = solvers[members[0]].solve
        some = solve([systems[number] for number in members], [gradients[number] for number in members])
        found |= zip(members, some, strict=True)
    return [found[number] for number in range(len(solvers))]


def one_by_one(
    solve: Callable[[LayerSystem, Layer], Layer],
) -> Callable[[Sequence[LayerSystem], Sequence[Layer]], list[LayerSolution]]:
    """The solve of a direct method, from that of one layer."""
    return lambda systems, gradients: [
        LayerSolution(solve(*pair), 0) for pair in zip(systems, gradients, strict=True)
    ]


def needs_rows(blocks: Blocks, solver: str) -> UnitBlocks:
    """The blocks as rows, or a sentence that says why not."""
    if not isinstance(blocks, UnitBlocks):
        raise ValueError(
            f"the {solver} solver needs a metric made of rows, got dense blocks; use the direct solver"
        )
    return blocks


def known_after(factor: Factor) -> Array:
    """A zero that is not known before the factor is: what the next LAPACK call has to wait for."""
    leaves = (leaf for leaf in jax.tree.leaves(factor) if jnp.issubdtype(leaf.dtype, jnp.floating))
    elements = sum(leaf.ravel()[0] for leaf in leaves)
    return jnp.where(jnp.isfinite(elements), jnp.clip(elements, -1, 1), 0) * 1e-30


def _chosen(choose: Choice, damped: Sequence[tuple[Any, UnitDamping]]) -> list[UnitSolver | None]:
    """The solver of every node; arrays need none."""
    layers = {i: block for i, (block, _) in enumerate(damped) if isinstance(block, Blocks)}
    found = dict(zip(layers, map(choose, layers.values()), strict=True))
    return [found.get(i) for i in range(len(damped))]


def _prepared(solver: UnitSolver, block: Blocks, damping: UnitDamping, after: Any) -> tuple[Any, Any]:
    if not solver.lapack:
        return solver.prepare(block, damping), after
    factor = solver.prepare(block, damping + after)
    return factor, known_after(factor)


def _length(block: Any, value: Any) -> Array:
    """v^T F v of one node."""
    product = block.mv(value) if isinstance(block, Blocks) else block * value
    return tree.vdot(value, product)


def _curvature(solver: UnitSolver, system: LayerSystem, right: Layer, solved: LayerSolution) -> Array:
    """x^T F x of one layer: as found, from its equation F x = g - a x, or by one more product."""
    if solved.curvature is not None:
        return solved.curvature
    if not solver.exact:
        return _length(system.blocks, solved.value)
    x, a = solved.value, system.damping
    weight = (x.weight * (right.weight - a[:, None] * x.weight)).sum()
    return weight + (x.bias * (right.bias - a * x.bias)).sum()


def _solution(gradient: Model, values: list[Any], lengths: list[Array], iterations: list[Any]) -> Solution:
    structure = jax.tree.structure(gradient, is_leaf=lambda node: isinstance(node, Layer))
    counts = jnp.stack([jnp.asarray(count, jnp.int32) for count in (0, *iterations)])
    curvature = sum(lengths[1:], lengths[0])
    return Solution(
        value=jax.tree.unflatten(structure, values),
        curvature=curvature,
        iterations=counts.max(),
        result=jnp.asarray(CONVERGED),
        residual=jnp.full_like(curvature, jnp.nan),
    )
