"""What a solver is: `prepare` once per metric, `solve` once per gradient.

    (damping I + F_j) x_j = g_j      for every unit j of a layer

The damping is a number per unit. A factor made by `prepare` may serve many gradients: that is all
the K-step update is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int

from natgrad.metrics.blocks import Blocks, UnitBlocks
from natgrad.models.bernoulli import Layer

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
    solve: Callable[[Factor, Layer], Solution]


def needs_rows(blocks: Blocks, solver: str) -> UnitBlocks:
    """The blocks as rows, or a sentence that says why not."""
    if not isinstance(blocks, UnitBlocks):
        raise ValueError(
            f"the {solver} solver needs a metric made of rows, got dense blocks; use the direct solver"
        )
    return blocks
