"""The Fisher of a whole network from rows of scores, in sample space, without a matrix of parameters.

    F = (1/n) sum_i g_i g_i^T,     g_i the derivative of log p(t_i | r_i) at a target that was drawn

In a layer the score of a row is the outer product of what entered it and the derivatives by its units' sums.
So an inner product of two rows' scores is a sum over layers of products of inner products, and the Gram
matrix of all rows costs less than a forward pass.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.core import Model, Product
from natgrad.layers.bernoulli import Layer
from natgrad.tree import pytree


@pytree
class LayerScores:
    """The scores of a layer: what entered it, and the derivatives by its units' sums."""

    inputs: Float[Array, "row in"]
    slopes: Float[Array, "row out"]

    def push(self, vector: Layer) -> Float[Array, " row"]:
        """The inner product of every row's score with a vector."""
        return (self.slopes * (self.inputs @ vector.weight.T + vector.bias)).sum(axis=1)

    def pull(self, weights: Float[Array, " row"]) -> Layer:
        """The sum of all rows' scores with weights."""
        own = weights[:, None] * self.slopes
        return Layer(own.T @ self.inputs, own.sum(axis=0))

    def gram(self) -> Float[Array, "row row"]:
        """The inner products of all pairs of rows' scores."""
        return (self.inputs @ self.inputs.T + 1) * (self.slopes @ self.slopes.T)


@pytree
class ArrayScores:
    """The scores of an array that is no layer."""

    values: Float[Array, "row ..."]

    def push(self, vector: Array) -> Float[Array, " row"]:
        """The inner product of every row's score with a vector."""
        return self._flat() @ vector.reshape(-1)

    def pull(self, weights: Float[Array, " row"]) -> Array:
        """The sum of all rows' scores with weights."""
        return (weights @ self._flat()).reshape(self.values.shape[1:])

    def gram(self) -> Float[Array, "row row"]:
        """The inner products of all pairs of rows' scores."""
        return self._flat() @ self._flat().T

    def _flat(self) -> Float[Array, "row number"]:
        return self.values.reshape(len(self.values), -1)


@pytree
class ScoredRows:
    """The operator; `scores` has scores in the places where the model has layers and other arrays."""

    scores: Any
    model: Model

    def bind(self) -> Product:
        """Products with F = R^T R; the rows of R are the scores, over the root of their number."""
        parts, structure = jax.tree.flatten(self.scores, is_leaf=_is_scores)
        number = len(jax.tree.leaves(parts)[0])
        root = jnp.sqrt(jnp.asarray(number, jax.tree.leaves(parts)[0].dtype))

        def push(vector: Model) -> Float[Array, " row"]:
            own = jax.tree.leaves(vector, is_leaf=lambda node: isinstance(node, Layer))
            return sum(part.push(each) for part, each in zip(parts, own, strict=True)) / root

        def pull(weights: Float[Array, " row"]) -> Model:
            return jax.tree.unflatten(structure, [part.pull(weights / root) for part in parts])

        def gram() -> Float[Array, "row row"]:
            return sum(part.gram() for part in parts) / number

        return Product(lambda v: pull(push(v)), None, push, pull, gram, number, rows=self.factor_rows)

    @property
    def like(self) -> Model:
        """The parameters."""
        return self.model

    def mean_diagonal(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """The trace over the number of parameters: exactly that of the Gram matrix."""
        del key
        gram: Callable[[], Array] | None = self.bind().gram
        assert gram is not None
        return jnp.trace(gram()) / sum(leaf.size for leaf in jax.tree.leaves(self.model))

    def factor_rows(self) -> Float[Array, "sample parameter"]:
        """R as a matrix in the order of `ravel_pytree`, for small problems."""
        product = self.bind()
        pull = product.pull
        assert pull is not None
        rows = jnp.eye(product.samples, dtype=jax.tree.leaves(self.model)[0].dtype)
        pulled = jax.vmap(pull)(rows)
        return jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(pulled)], axis=1)


def _is_scores(node: Any) -> bool:
    return isinstance(node, LayerScores | ArrayScores)
