"""The inverse of every block by Cholesky: exact, out x (in + 1)^2 numbers.

LAPACK calls that XLA may run at the same time can wait for each other forever on a computer with
few cores: `natgrad.solvers.units` makes each depend on the one before. So can batches of them on several
virtual devices of one processor.
"""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as linalg
from jaxtyping import Array, Float

from natgrad.devices import has_mesh, parts, placed
from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import Blocks, join, split
from natgrad.solvers.units import LayerSystem, UnitDamping, UnitSolver, one_by_one


def direct() -> UnitSolver:
    """Invert every block."""
    return UnitSolver("direct", True, True, _prepare, one_by_one(_solve))


def inverse(matrices: Float[Array, "batch side side"]) -> Float[Array, "batch side side"]:
    """The inverses of symmetric positive definite matrices."""
    if has_mesh() and jax.default_backend() == "cpu":
        return _in_turn(matrices)
    return _at_once(matrices)


def _in_turn(matrices: Float[Array, "batch side side"]) -> Float[Array, "batch side side"]:
    """One matrix after the other on every device: batches of several virtual devices wait for each other."""
    devices = parts("units") if len(matrices) % parts("units") == 0 else 1
    shares = matrices.reshape(devices, -1, *matrices.shape[1:]).swapaxes(0, 1)
    found = jax.lax.map(_at_once, placed(shares, None, "units", None, None))
    return found.swapaxes(0, 1).reshape(matrices.shape)


def _at_once(matrices: Float[Array, "batch side side"]) -> Float[Array, "batch side side"]:
    lower = jnp.linalg.cholesky(matrices)
    identity = jnp.broadcast_to(jnp.eye(matrices.shape[-1], dtype=matrices.dtype), matrices.shape)
    half = linalg.solve_triangular(lower, identity, lower=True)
    return jnp.einsum("jki,jkl->jil", half, half)


def _prepare(blocks: Blocks, damping: UnitDamping) -> Float[Array, "out side side"]:
    identity = jnp.eye(blocks.size, dtype=damping.dtype)
    return inverse(blocks.dense() + damping[:, None, None] * identity)


def _solve(system: LayerSystem, gradient: Layer) -> Layer:
    return split(jnp.einsum("jik,jk->ji", system.factor, join(gradient)))
