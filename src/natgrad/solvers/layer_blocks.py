"""Solve (damping I + F) x = g where F is made of the blocks of layers (`metrics.layer_blocks`).

`block_solve` is exact: (A x G + damping I)^{-1} by the eigenvectors of A and G. `factored_solve` damps each
factor instead [martens2015 sec. 6.3], which needs only their inverses:

    (A + p I)^{-1} V (G + q I)^{-1},   p q = damping,   p / q = (mean diagonal of A) / (mean diagonal of G)
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.scipy.linalg as linalg
from jaxtyping import Array, Float

from natgrad.core import Model, Solution, Solver
from natgrad.errors import InputError
from natgrad.metrics.layer_blocks import ExactBlock, KroneckerBlock, LayerBlocks, diagonal_of, times_outputs
from natgrad.solvers.results import CONVERGED, FAILED
from natgrad.solvers.units import known_after


class BlockFactors(NamedTuple):
    """Blocks ready to be solved: the operator with its damping, and a factor for every layer."""

    operator: LayerBlocks
    damping: Float[Array, ""]
    factors: tuple[Any, ...]


class EigenFactor(NamedTuple):
    """Eigenvectors of A and of G (ones for a diagonal G), and the products of their eigenvalues."""

    inputs: Float[Array, "side side"]
    outputs: Float[Array, "unit unit"] | Float[Array, " unit"]
    values: Float[Array, "side unit"]


class InverseFactor(NamedTuple):
    """The inverses of A + p I and G + q I, with p and q; that of a diagonal G is its diagonal."""

    inputs: Float[Array, "side side"]
    outputs: Float[Array, "unit unit"] | Float[Array, " unit"]
    strengths: Float[Array, " 2"]


_Prepare = Callable[[Any, Array, Any], tuple[Any, Any]]


def block_solve() -> Solver:
    """Every block with the damping added to it, exactly."""
    return _by_blocks(_eigenvectors)


def factored_solve() -> Solver:
    """A x G with both of its factors damped; exact blocks exactly."""
    return _by_blocks(_inverses)


def _by_blocks(kronecker: _Prepare) -> Solver:
    def prepare(operator: LayerBlocks, damping: Array, after: Any) -> tuple[BlockFactors, Any]:
        if not isinstance(operator, LayerBlocks):
            raise InputError("this solver needs blocks of layers; use kronecker_blocks() or exact_blocks()")
        factors = []
        for block in operator.blocks:
            make: _Prepare = _inverse_of_exact if isinstance(block, ExactBlock) else kronecker
            factor, after = make(block, damping, after)
            factors.append(factor)
        return BlockFactors(operator, jnp.asarray(damping), tuple(factors)), after

    def solve(factor: BlockFactors, gradient: Model, guess: Model | None) -> Solution:
        del guess
        operator, damping = factor.operator, factor.damping
        lengths: list[Array] = []

        def layer(own: Any, right: Array) -> Array:
            value, image = _solved(own, right, damping)
            lengths.append(jnp.vdot(value, image))
            return value

        def other(diagonal: Array, right: Array) -> Array:
            value = right / (diagonal + damping)
            lengths.append(jnp.vdot(value, diagonal * value))
            return value

        value = operator.by_block(layer, other, gradient, (factor.factors, operator.diagonals))
        curvature = sum(lengths[1:], lengths[0])
        result = jnp.where(jnp.isfinite(curvature), CONVERGED, FAILED)
        nothing = jnp.full_like(curvature, jnp.nan)
        return Solution(value, curvature, jnp.zeros((), jnp.int32), result, nothing)

    return Solver(prepare, solve)


def _eigenvectors(block: KroneckerBlock, damping: Array, after: Any) -> tuple[EigenFactor, Any]:
    del damping
    values, inputs = jnp.linalg.eigh(block.inputs + after)
    if block.outputs.ndim == 1:
        positive = jnp.outer(jnp.maximum(values, 0), block.outputs)
        return EigenFactor(inputs, jnp.ones_like(block.outputs), positive), known_after(values)
    others, outputs = jnp.linalg.eigh(block.outputs + known_after(values))
    positive = jnp.outer(jnp.maximum(values, 0), jnp.maximum(others, 0))
    return EigenFactor(inputs, outputs, positive), known_after(others)


def _inverses(block: KroneckerBlock, damping: Array, after: Any) -> tuple[InverseFactor, Any]:
    means = [jnp.maximum(diagonal_of(side).mean(), 1e-30) for side in block]
    p = jnp.sqrt(damping * means[0] / means[1])
    q = jnp.sqrt(damping * means[1] / means[0])
    inputs = _inverse(block.inputs, p + after)
    if block.outputs.ndim == 1:
        return InverseFactor(inputs, 1 / (block.outputs + q), jnp.stack([p, q])), known_after(inputs)
    outputs = _inverse(block.outputs, q + known_after(inputs))
    return InverseFactor(inputs, outputs, jnp.stack([p, q])), known_after(outputs)


def _inverse_of_exact(block: ExactBlock, damping: Array, after: Any) -> tuple[Array, Any]:
    found = _inverse(block.matrix, damping + after)
    return found, known_after(found)


def _inverse(matrix: Array, damping: Array) -> Array:
    return inverse_and_root(matrix + damping * jnp.eye(matrix.shape[0], dtype=matrix.dtype))[1]


def inverse_and_root(
    matrix: Float[Array, "side side"], largest: int = 32
) -> tuple[Float[Array, "side side"], Float[Array, "side side"]]:
    """The inverse W of the factor of Cholesky, and that of the matrix, W^T W, from those of two halves.

    Nearly all of it is products, at half the time of triangular solves. LAPACK sees matrices of at most
    `largest` rows: it gives larger ones to threads of its own, which wait by spinning for cores that XLA's
    threads hold. With blocks of up to 100 rows a metric in a training took four times as long to renew.
    """
    side, half = matrix.shape[0], matrix.shape[0] // 2
    if side <= largest:
        identity = jnp.eye(side, dtype=matrix.dtype)
        root = linalg.solve_triangular(jnp.linalg.cholesky(matrix), identity, lower=True)
        return root, root.T @ root
    first, first_inverse = inverse_and_root(matrix[:half, :half], largest)
    below = matrix[half:, :half] @ first.T
    second, second_inverse = inverse_and_root(matrix[half:, half:] - below @ below.T, largest)
    corner = -second @ (below @ first)
    mixed = corner.T @ second
    root = jnp.block([[first, jnp.zeros((half, side - half), matrix.dtype)], [corner, second]])
    return root, jnp.block([[first_inverse + corner.T @ corner, mixed], [mixed.T, second_inverse]])


def _solved(factor: Any, right: Array, damping: Array) -> tuple[Array, Array]:
    """The solution X of one layer, and F X."""
    if isinstance(factor, EigenFactor):
        turned = times_outputs(factor.inputs.T @ right, factor.outputs) / (factor.values + damping)
        value = times_outputs(factor.inputs @ turned, factor.outputs.T)
        return value, right - damping * value
    if isinstance(factor, InverseFactor):
        p, q = factor.strengths
        left = factor.inputs @ right  # X (G + q I)
        other = times_outputs(right, factor.outputs)  # (A + p I) X
        first = factor.outputs.ndim == 1 or right.shape[0] > right.shape[1]
        value = times_outputs(left, factor.outputs) if first else factor.inputs @ other
        return value, right - p * left - q * other + p * q * value  # A X G
    value = (factor @ right.ravel()).reshape(right.shape)
    return value, right - damping * value
