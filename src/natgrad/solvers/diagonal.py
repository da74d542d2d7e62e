"""Only the diagonal of every block [nrws eq. 35-36]; in {-1,+1} coding just a step size per unit."""

import jax

from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import Blocks
from natgrad.solvers.units import LayerSystem, UnitDamping, UnitSolver, one_by_one


def diagonal() -> UnitSolver:
    """Divide by damping + diagonal."""
    return UnitSolver("diagonal", False, False, _prepare, one_by_one(_solve))


def _prepare(blocks: Blocks, damping: UnitDamping) -> Layer:
    found = blocks.diagonal()
    return Layer(1 / (damping[:, None] + found.weight), 1 / (damping + found.bias))


def _solve(system: LayerSystem, gradient: Layer) -> Layer:
    return jax.tree.map(lambda inverse, g: inverse * g, system.factor, gradient)
