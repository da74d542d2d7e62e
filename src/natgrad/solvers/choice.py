"""Which solver for which layer."""

from natgrad.metrics.blocks import Blocks, UnitBlocks
from natgrad.solvers.direct import direct
from natgrad.solvers.dual import dual
from natgrad.solvers.shared import shared
from natgrad.solvers.unit_cg import unit_conjugate_gradient
from natgrad.solvers.units import Choice, UnitSolver


def always(solver: UnitSolver) -> Choice:
    """The same solver for every layer."""
    return lambda blocks: solver


def by_refresh(refresh: int, iterations: int) -> Choice:
    """Conjugate gradients for a metric that changes at every step, a shared basis for one that is kept.

    A kept metric is soon further from the present one than a shared basis is from the kept one
    (docs/performance.md), and inverses would cost more to read at every step than conjugate gradients. Dense
    blocks (averages) can only be inverted.
    """
    usual = unit_conjugate_gradient(iterations) if refresh == 1 else shared()

    def choose(blocks: Blocks) -> UnitSolver:
        return usual if isinstance(blocks, UnitBlocks) else direct()

    return choose


def by_size() -> Choice:
    """Inverses, of blocks or in sample space, whichever are smaller [nrws sec. 6.1]."""
    blocks_inverted, rows_inverted = direct(), dual()

    def choose(blocks: Blocks) -> UnitSolver:
        fewer_rows = isinstance(blocks, UnitBlocks) and blocks.inputs.shape[1] < blocks.size
        return rows_inverted if fewer_rows else blocks_inverted

    return choose
