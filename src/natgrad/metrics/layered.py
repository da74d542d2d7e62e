"""A metric with one block for every unit of every layer, as one operator.

Where the model, or the part of it that is measured, has a `Layer`, the operator has its `Blocks`; where it
has any other array, the operator has the diagonal of that array's metric. What there is for each of
them (layers and arrays, in the order of the tree) is a *node*.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from natgrad import tree
from natgrad.core import Carry, DampingStrength, Metric, Model, Product, Samples
from natgrad.devices import gathered, parts
from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import Blocks, DenseBlocks, UnitBlocks, per_unit, scaled
from natgrad.tree import pytree

Node = Layer | Blocks | Array


def nodes(part: Any) -> list[Any]:
    """Layers, blocks and other arrays of a tree, in order."""
    return jax.tree.leaves(part, is_leaf=_is_node)


def map_nodes(function: Callable[..., Any], part: Any, *rest: Any) -> Any:
    """A tree of what a function makes of every node, and of the nodes of other trees beside it."""
    structure = jax.tree.structure(part, is_leaf=_is_node)
    found = [function(*each) for each in zip(nodes(part), *map(nodes, rest), strict=True)]
    return jax.tree.unflatten(structure, found)


def _is_node(node: Any) -> bool:
    return isinstance(node, Layer | UnitBlocks | DenseBlocks)


@pytree
class LayeredFisher:
    """The operator; `blocks` is shaped like the part of a model that it measures."""

    blocks: Any

    def bind(self) -> Product:
        """Products and the diagonal, block by block."""
        return Product(self.mv, lambda: self.like)

    def mv(self, vector: Model) -> Model:
        """F v."""
        return map_nodes(_product, vector, self.blocks)

    @property
    def like(self) -> Model:
        """Its diagonal."""
        return map_nodes(_diagonal, self.blocks)

    def damped(self, damping: DampingStrength) -> list[tuple[Any, Array]]:
        """Every node with the damping of its units, from one number or from those of every node."""
        found = nodes(self.blocks)
        given = damping if isinstance(damping, tuple) else (damping,) * len(found)
        return list(zip(found, per_unit(given, found), strict=True))

    def placed(self) -> "LayeredFisher":
        """With its rows on every device of a mesh, and what belongs to units where these live."""
        return LayeredFisher(map_nodes(lambda node: node.placed() if _is_node(node) else node, self.blocks))

    def gathered(self) -> "LayeredFisher":
        """As placed, from rows that are split over devices: those of all layers are sent together.

        Where units are split, too, every layer is sent by itself.
        """
        made = [node for node in nodes(self.blocks) if isinstance(node, UnitBlocks)]
        if parts("rows") == 1 or parts("units") > 1 or not made:
            return self.placed()
        whole = gathered([array for node in made for array in (node.inputs, node.curvature)])
        pairs = zip(whole[::2], whole[1::2], strict=True)
        return LayeredFisher(
            map_nodes(
                lambda node: UnitBlocks(*next(pairs)) if isinstance(node, UnitBlocks) else node, self.blocks
            )
        )

    def mean_diagonal(self, key: PRNGKeyArray) -> tuple[Array, ...]:
        """A number for every unit of every node: its block's trace over its side."""
        del key
        return tuple(map(_mean, nodes(self.blocks)))


def gained(damping: DampingStrength, vector: Model) -> Model:
    """(1 + damping) times a vector; the damping is one number, or has some for every node [nrws eq. 31]."""
    if not isinstance(damping, tuple):
        return tree.scale(1 + damping, vector)
    structure = jax.tree.structure(vector, is_leaf=_is_node)
    parts = [_scaled(1 + a, node) for a, node in zip(damping, nodes(vector), strict=True)]
    return jax.tree.unflatten(structure, parts)


def averaged(metric: Metric, decay: float) -> Metric:
    """An exponential average of the blocks over the times they are measured, as matrices."""

    def dense(key: PRNGKeyArray, carry: Carry, model: Model, drawn: Samples) -> tuple[LayeredFisher, Carry]:
        found, after = metric.measure(key, carry, model, drawn)
        whole = lambda node: DenseBlocks(node.dense()) if _is_node(node) else node  # noqa: E731
        return LayeredFisher(map_nodes(whole, found.blocks)), after

    def init(key: PRNGKeyArray, model: Model, drawn: Samples) -> Carry:
        carry = metric.init(key, model, drawn)
        shape, _ = jax.eval_shape(dense, key, carry, model, drawn)
        return jnp.zeros((), jnp.int32), tree.zeros(shape), carry

    def measure(key: PRNGKeyArray, carry: Carry, model: Model, drawn: Samples) -> tuple[LayeredFisher, Carry]:
        count, mean, inner = carry
        new, inner = dense(key, inner, model, drawn)
        mean = tree.blend(jnp.where(count == 0, 0.0, decay), mean, new)
        return mean, (count + 1, mean, inner)

    return Metric(init, measure)


def _product(vector: Any, block: Any) -> Any:
    return block.mv(vector) if isinstance(vector, Layer) else block * vector


def _diagonal(block: Any) -> Any:
    return block.diagonal() if _is_node(block) else block


def _mean(block: Any) -> Array:
    return block.trace() / block.size if _is_node(block) else block


def _scaled(factor: Array, node: Any) -> Any:
    return scaled(factor, node) if isinstance(node, Layer) else factor * node
