"""What a solver is: `prepare` every layer once per metric, `solve` all of them once per gradient.

    (damping I + F_j) x_j = g_j      for every unit j of a layer

The damping is a number per unit. Layers are solved together, since a solver may have to do less for all of
them than for each. A factor made by `prepare` may serve many gradients: that is all
the K-step update is.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int

from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import Blocks, UnitBlocks

Factor = Any
Damping = Float[Array, " out"]


class Solution(NamedTuple):
    """The solution for one layer, and how many iterations it took (0: a direct method)."""

    value: Layer
    iterations: Int[Array, ""] | int


class Solver(NamedTuple):
    """A way to solve, its name for the reader, and whether `prepare` calls LAPACK."""

    name: str
    lapack: bool
    prepare: Callable[[Blocks, Damping], Factor]
    solve: Callable[[Sequence[Factor], Sequence[Layer]], list[Solution]]


def one_by_one(
    solve: Callable[[Factor, Layer], Layer],
) -> Callable[[Sequence[Factor], Sequence[Layer]], list[Solution]]:
    """The solve of a direct method, from that of one layer."""
    return lambda factors, gradients: [
        Solution(solve(*pair), 0) for pair in zip(factors, gradients, strict=True)
    ]


def solve_layers(
    solvers: Sequence[Solver], factors: Sequence[Factor], gradients: Sequence[Layer]
) -> list[Solution]:
    """Every layer by its own solver, those of the same solver together."""
    found: dict[int, Solution] = {}
    for name in {solver.name: None for solver in solvers}:
        members = [number for number, solver in enumerate(solvers) if solver.name == name]
        solve = solvers[members[0]].solve
        some = solve([factors[number] for number in members], [gradients[number] for number in members])
        found |= zip(members, some, strict=True)
    return [found[number] for number in range(len(solvers))]


def needs_rows(blocks: Blocks, solver: str) -> UnitBlocks:
    """The blocks as rows, or a sentence that says why not."""
    if not isinstance(blocks, UnitBlocks):
        raise ValueError(
            f"the {solver} solver needs a metric made of rows, got dense blocks; use the direct solver"
        )
    return blocks
