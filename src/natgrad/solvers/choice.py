"""Which solver for which layer."""

from collections.abc import Callable

from natgrad.metrics.blocks import Blocks, UnitBlocks
from natgrad.solvers.contract import Solver
from natgrad.solvers.direct import direct
from natgrad.solvers.dual import dual
from natgrad.solvers.krylov import conjugate_gradient

Choice = Callable[[Blocks], Solver]


def always(solver: Solver) -> Choice:
    """The same solver for every layer."""
    return lambda blocks: solver


def automatic(refresh: int, iterations: int, *, memory_mb: float = 12.0) -> Choice:
    """Conjugate gradients for a metric that changes at every step, stored inverses for one that is kept.

    An inverse lives in parameter space or in sample space, whichever is smaller; a layer whose
    inverses would take more than `memory_mb` is solved by conjugate gradients all the same. Dense
    blocks (averages) can only be inverted.
    """

    def choose(blocks: Blocks) -> Solver:
        if not isinstance(blocks, UnitBlocks):
            return direct()
        units, rows = blocks.curvature.shape
        side = min(rows, blocks.size)
        if refresh == 1 or units * side**2 * 4 > memory_mb * 2**20:
            return conjugate_gradient(iterations)
        return dual() if rows < blocks.size else direct()

    return choose
