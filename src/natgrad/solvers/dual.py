"""Solve in sample space, where there are fewer rows than inputs [nrws eq. 32].

With R = U sqrt(Q_j), F_j = R R^T and

    (a I + F_j)^{-1} = (1/a) (I - R (a I + R^T R)^{-1} R^T),

which unlike the printed form needs no inverse of Q: a row of weight zero does no harm. The
factor holds out x rows^2 numbers.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import Blocks
from natgrad.solvers.direct import inverse
from natgrad.solvers.units import LayerSystem, UnitDamping, UnitSolver, needs_rows, one_by_one


class DualFactor(NamedTuple):
    """The square roots of the rows' curvature, and the inverses in sample space."""

    root: Float[Array, "out row"]
    inner: Float[Array, "out row row"]


def dual() -> UnitSolver:
    """Invert in sample space."""
    return UnitSolver("dual", True, True, _prepare, one_by_one(_solve))


def _prepare(blocks: Blocks, damping: UnitDamping) -> DualFactor:
    rows = needs_rows(blocks, "dual")
    root = jnp.sqrt(rows.curvature)
    identity = jnp.eye(root.shape[1], dtype=root.dtype)
    matrices = root[:, :, None] * rows.gram() * root[:, None, :] + damping[:, None, None] * identity
    return DualFactor(root, inverse(matrices))


def _solve(system: LayerSystem, gradient: Layer) -> Layer:
    """(g - U sqrt(Q) s) / a, with s the solution in sample space."""
    rows, factor, damping = needs_rows(system.blocks, "dual"), system.factor, system.damping
    seen = factor.root * rows.responses(gradient)
    back = rows.gather(factor.root * jnp.einsum("jik,jk->ji", factor.inner, seen))
    return Layer((gradient.weight - back.weight) / damping[:, None], (gradient.bias - back.bias) / damping)
