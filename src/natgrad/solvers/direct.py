"""The inverse of every block by Cholesky: exact, out x (in + 1)^2 numbers.

LAPACK calls that XLA may run at the same time can wait for each other for ever on a machine with
few cores: whoever prepares several layers makes each depend on the last (`updates.natural`).
"""

import jax.numpy as jnp
import jax.scipy.linalg as linalg
from jaxtyping import Array, Float

from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import Blocks, join, split
from natgrad.solvers.contract import Damping, Solver, one_by_one


def direct() -> Solver:
    """Invert every block."""
    return Solver("direct", True, _prepare, one_by_one(_solve))


def inverse(matrices: Float[Array, "batch side side"]) -> Float[Array, "batch side side"]:
    """The inverses of symmetric positive definite matrices."""
    lower = jnp.linalg.cholesky(matrices)
    identity = jnp.broadcast_to(jnp.eye(matrices.shape[-1], dtype=matrices.dtype), matrices.shape)
    half = linalg.solve_triangular(lower, identity, lower=True)
    return jnp.einsum("jki,jkl->jil", half, half)


def _prepare(blocks: Blocks, damping: Damping) -> Float[Array, "out side side"]:
    identity = jnp.eye(blocks.size, dtype=damping.dtype)
    return inverse(blocks.dense() + damping[:, None, None] * identity)


def _solve(factor: Float[Array, "out side side"], gradient: Layer) -> Layer:
    return split(jnp.einsum("jik,jk->ji", factor, join(gradient)))
