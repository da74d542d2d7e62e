"""Solve in sample space, where there are fewer rows than inputs [nrws eq. 32].

With R = U sqrt(Q_j), F_j = R R^T and

    (a I + F_j)^{-1} = (1/a) (I - R (a I + R^T R)^{-1} R^T),

which unlike the printed form needs no inverse of Q: a row of weight zero does no harm. The
factor holds out x rows^2 numbers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import Blocks, UnitBlocks
from natgrad.solvers.contract import Damping, Solver, needs_rows, one_by_one
from natgrad.solvers.direct import inverse


class DualFactor(NamedTuple):
    """The rows, the square roots of their curvature, and the inverses in sample space."""

    blocks: UnitBlocks
    root: Float[Array, "out row"]
    inner: Float[Array, "out row row"]
    damping: Damping


def dual() -> Solver:
    """Invert in sample space."""
    return Solver("dual", True, _prepare, one_by_one(_solve))


def gram(blocks: UnitBlocks) -> Float[Array, "row row"]:
    """U^T U, shared by all units."""
    turned = jax.lax.optimization_barrier(blocks.inputs.T)  # a product of stored matrices is faster
    return turned @ blocks.inputs + 1


def _prepare(blocks: Blocks, damping: Damping) -> DualFactor:
    rows = needs_rows(blocks, "dual")
    root = jnp.sqrt(rows.curvature)
    identity = jnp.eye(root.shape[1], dtype=root.dtype)
    matrices = root[:, :, None] * gram(rows) * root[:, None, :] + damping[:, None, None] * identity
    return DualFactor(rows, root, inverse(matrices), damping)


def _solve(factor: DualFactor, gradient: Layer) -> Layer:
    seen = factor.root * factor.blocks.responses(gradient)
    return lift(factor, gradient, jnp.einsum("jik,jk->ji", factor.inner, seen))


def lift(factor: DualFactor, gradient: Layer, inner: Array) -> Layer:
    """From the solution in sample space back to parameters: (g - U sqrt(Q) inner) / a."""
    back = factor.blocks.gather(factor.root * inner)
    weight = (gradient.weight - back.weight) / factor.damping[:, None]
    return Layer(weight, (gradient.bias - back.bias) / factor.damping)
