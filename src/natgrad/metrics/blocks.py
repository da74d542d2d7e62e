"""A layer's Fisher as an operator: one block per unit, never stored unless asked for.

    F_j = sum_r curvature_jr u_r u_r^T,     u_r = (inputs_r, 1)          [nrws eq. 25-28]

The units of a layer share the inputs and differ only in the curvature p (1 - p) of every row,
times the row's weight. A metric knows nothing of damping or of solvers.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.devices import placed
from natgrad.layers.bernoulli import Layer
from natgrad.tree import pytree


@pytree
class UnitBlocks:
    """The blocks of a layer's units, as the rows they are made of."""

    inputs: Float[Array, "in row"]
    curvature: Float[Array, "out row"]

    @property
    def size(self) -> int:
        """The side of a block: inputs and bias."""
        return self.inputs.shape[0] + 1

    @property
    def units(self) -> int:
        """How many blocks there are."""
        return self.curvature.shape[0]

    def placed(self) -> "UnitBlocks":
        """The same rows on every device of a mesh, each with the curvature of its own units."""
        return UnitBlocks(placed(self.inputs, None, None), placed(self.curvature, "units", None))

    def responses(self, vector: Layer) -> Float[Array, "out row"]:
        """What a change of the parameters does to every logit: u_r . v_j."""
        return vector.weight @ self.inputs + vector.bias[:, None]

    def gather(self, rows: Float[Array, "out row"]) -> Layer:
        """The transpose of `responses`: sum over rows of rows_jr u_r."""
        return Layer(rows @ self.inputs.T, rows.sum(axis=1))

    def gram(self) -> Float[Array, "row row"]:
        """U^T U, shared by all units."""
        turned = jax.lax.optimization_barrier(self.inputs.T)  # a product of stored matrices is faster
        return turned @ self.inputs + 1

    def mv(self, vector: Layer) -> Layer:
        """F v for every unit."""
        return self.gather(self.curvature * self.responses(vector))

    def dense(self) -> Float[Array, "out side side"]:
        """Every block as a matrix, the bias last."""
        ones = jnp.ones_like(self.curvature[:1])  # a unit without inputs has a bias, too
        rows = jnp.concatenate([self.inputs, ones])
        return jnp.einsum("jr,ir,kr->jik", self.curvature, rows, rows)

    def diagonal(self) -> Layer:
        """The diagonals of all blocks. In {-1,+1} coding all entries of a unit are equal."""
        return Layer(self.curvature @ (self.inputs**2).T, self.curvature.sum(axis=1))

    def trace(self) -> Float[Array, " out"]:
        """The trace of every block."""
        return self.curvature @ ((self.inputs**2).sum(axis=0) + 1)

    def leading(self) -> Float[Array, " out"]:
        """Close to the largest eigenvalues: Rayleigh quotients along the mean input, F e with e the bias."""
        image = self.curvature @ (self.inputs.T @ self.inputs + 1)  # u_r . F e
        weighted = self.curvature * image
        return _quotient((weighted * image).sum(axis=1), weighted.sum(axis=1))


@pytree
class DenseBlocks:
    """The blocks of a layer as matrices, for averages over steps and as an oracle."""

    matrix: Float[Array, "out side side"]

    @property
    def size(self) -> int:
        """The side of a block: inputs and bias."""
        return self.matrix.shape[-1]

    @property
    def units(self) -> int:
        """How many blocks there are."""
        return self.matrix.shape[0]

    def placed(self) -> "DenseBlocks":
        """Every block where its unit lives."""
        return DenseBlocks(placed(self.matrix, "units", None, None))

    def mv(self, vector: Layer) -> Layer:
        """F v for every unit."""
        return split(jnp.einsum("jik,jk->ji", self.matrix, join(vector)))

    def dense(self) -> Float[Array, "out side side"]:
        """Every block as a matrix."""
        return self.matrix

    def diagonal(self) -> Layer:
        """The diagonals of all blocks."""
        return split(jnp.diagonal(self.matrix, axis1=1, axis2=2))

    def trace(self) -> Float[Array, " out"]:
        """The trace of every block."""
        return jnp.trace(self.matrix, axis1=1, axis2=2)

    def leading(self) -> Float[Array, " out"]:
        """As for blocks made of rows."""
        mean = self.matrix[..., -1]
        image = jnp.einsum("jik,jk->ji", self.matrix, mean)
        return _quotient((mean * image).sum(axis=1), (mean * mean).sum(axis=1))


Blocks = UnitBlocks | DenseBlocks


def _quotient(above: Array, below: Array) -> Array:
    return above / jnp.maximum(below, 1e-30)


def per_unit(numbers: Sequence[Any], nodes: Sequence[Blocks | Array]) -> list[Array]:
    """A number for every unit of some blocks, or for every entry of an array, from one or as many."""
    shapes = [(node.units,) if isinstance(node, Blocks) else node.shape for node in nodes]
    return list(map(jnp.broadcast_to, numbers, shapes))


def join(layer: Layer) -> Float[Array, "out side"]:
    """Weights and bias of every unit as one vector, the bias last."""
    return jnp.concatenate([layer.weight, layer.bias[:, None]], axis=1)


def split(vectors: Float[Array, "out side"]) -> Layer:
    """The inverse of `join`."""
    return Layer(vectors[:, :-1], vectors[:, -1])


def scaled(factor: Float[Array, " out"], layer: Layer) -> Layer:
    """Every unit times its own number."""
    return Layer(factor[:, None] * layer.weight, factor * layer.bias)
