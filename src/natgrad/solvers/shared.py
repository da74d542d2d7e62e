"""One basis for all units of a layer: cheap to keep, cheap to use, not exact.

The units of a layer share their inputs and differ only in the curvature of every row. In the leading
eigenvectors v_k of the units' mean block every block is close to diagonal,

    F_j ~ sum_k l_jk v_k v_k^T + b_j (I - sum_k v_k v_k^T),     l_jk = v_k^T F_j v_k,

with b_j the mean of the rest of its trace over the remaining directions; so a layer's factor is two thin
matrices instead of an inverse per unit. What is left out: how the directions of a basis meet in one unit,
and how the others differ. Few directions are enough for a metric that is kept: the
more there are, the closer it is to the rows that it was made of, but not to those that come later.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.devices import by_first_axis
from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import Blocks
from natgrad.solvers.units import LayerSystem, UnitDamping, UnitSolver, needs_rows, one_by_one

RANK = 16
NOTHING = 1e-6  # eigenvalues below this share of the largest are rounding errors


class SharedFactor(NamedTuple):
    """The basis (the bias' row by itself), what share of it a unit's metric takes away, 1 / (a + b)."""

    basis: Float[Array, "in rank"]
    bias: Float[Array, " rank"]
    taken: Float[Array, "out rank"]
    inverse: UnitDamping


def shared(rank: int = RANK) -> UnitSolver:
    """Keep at most `rank` directions that all units of a layer share."""

    def prepare(blocks: Blocks, damping: UnitDamping) -> SharedFactor:
        found = needs_rows(blocks, "shared")
        rows = jnp.concatenate([found.inputs, jnp.ones_like(found.inputs[:1])])
        after = 1e-30 * damping[0]  # nothing, but LAPACK waits for what the damping waits for
        basis = _leading(rows * jnp.sqrt(found.curvature.mean(axis=0)), rank, after)
        length = found.curvature @ ((basis.T @ rows) ** 2).T  # l_jk
        others = max(found.size - basis.shape[1], 1)
        bulk = jnp.maximum(found.trace() - length.sum(axis=1), 0) / others  # b_j
        outside = damping + bulk
        taken = 1 - outside[:, None] / (length + damping[:, None])
        return SharedFactor(basis[:-1], basis[-1], taken, 1 / outside)

    return UnitSolver("shared", True, False, prepare, one_by_one(_solve), _place)


def _place(factor: SharedFactor) -> SharedFactor:
    """The basis on every device, the rest where its units live."""
    whole = by_first_axis((factor.basis, factor.bias), "")
    return SharedFactor(*whole, *by_first_axis((factor.taken, factor.inverse), "units"))


def _leading(rows: Float[Array, "side row"], rank: int, after: Array) -> Float[Array, "side rank"]:
    """The leading eigenvectors of rows @ rows.T, from the smaller of the two Gram matrices."""
    side, count = rows.shape
    if side <= count:
        return jnp.linalg.eigh(rows @ rows.T + after)[1][:, -rank:]
    values, vectors = jnp.linalg.eigh(rows.T @ rows + after)
    real = values > NOTHING * values[-1]
    scale = jnp.where(real, 1 / jnp.sqrt(jnp.where(real, values, 1)), 0)
    return rows @ (vectors * scale)[:, -rank:]


def _solve(system: LayerSystem, gradient: Layer) -> Layer:
    """(g - sum_k (1 - (a + b) / (a + l_k)) (v_k . g) v_k) / (a + b), unit by unit."""
    basis, last, taken, inverse = system.factor
    away = taken * (gradient.weight @ basis + gradient.bias[:, None] * last)
    weight = (gradient.weight - away @ basis.T) * inverse[:, None]
    return Layer(weight, (gradient.bias - away @ last) * inverse)
