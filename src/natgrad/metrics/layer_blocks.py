"""The metric of any network block by block, one for each of its layers [martens2015] [grosse2016].

For row i, a layer sees inputs a_it (with a one for the bias) at the positions t of the row, and column k of
the metric's factor gives the derivatives d_ikt of its outputs, so that its block of the metric is exactly

    F_l = (1/n) sum_ik r_ik r_ik^T,     r_ik = vec sum_t a_it d_ikt^T

`exact_blocks` stores that matrix. `kronecker_blocks` (K-FAC) takes inputs and derivatives for independent,
and the derivatives at different positions for uncorrelated:

    F_l ~ A x G,     A = (1/n) sum_it a_it a_it^T,     G = (1/nT) sum_ikt d_ikt d_ikt^T

Where a layer's outputs are those of the network and its distribution makes them independent, the expectation
of G is diagonal and known: it is not drawn. Leaves that belong to no layer have the diagonal of their block.
Which metric has the factor is chosen as for the whole network; averages over steps are exponential.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad import tree
from natgrad.core import Carry, Metric, Model, Product
from natgrad.errors import InputError
from natgrad.layers.apart import check_apart
from natgrad.layers.task import Examples, Task, TaskBatch
from natgrad.metrics.curvature import Curvature, TaskMetric, monte_carlo_fisher
from natgrad.metrics.layer_report import other_lines
from natgrad.metrics.programs import TracedLayer, changed_outputs, from_matrix, output_rows, to_matrix
from natgrad.metrics.tracing import TracedNetwork, traced_network
from natgrad.tree import pytree, static

_ROOM_MB = 64.0  # of gradients, row by row, of what belongs to no layer
_LARGEST = 1024  # parameters of a layer whose exact block is stored


class KroneckerBlock(NamedTuple):
    """A x G of a layer; of a diagonal G the diagonal."""

    inputs: Float[Array, "side side"]
    outputs: Float[Array, "unit unit"] | Float[Array, " unit"]


class ExactBlock(NamedTuple):
    """The block of a layer as a matrix, in the order of its parameters as [side, unit]."""

    matrix: Float[Array, "parameter parameter"]


class LayerRows(NamedTuple):
    """What a layer's block is made of; `expected` is the diagonal of G, where it is known."""

    inputs: Float[Array, "row position side"]
    outputs: Float[Array, "row column position unit"]
    expected: Float[Array, " unit"] | None = None


_Block = KroneckerBlock | ExactBlock
_Make = Callable[[LayerRows], _Block]


@pytree
class LayerBlocks:
    """A block for every layer, and a diagonal for every other leaf, by its number."""

    parameters: Model
    blocks: tuple[_Block, ...]
    diagonals: tuple[Array, ...]
    layers: tuple[TracedLayer, ...] = static()
    others: tuple[int, ...] = static()

    def bind(self) -> Product:
        """Products block by block, and the diagonal."""
        return Product(lambda v: self.by_block(_product, _times, v), lambda: self._diagonal())

    @property
    def like(self) -> Model:
        """The parameters."""
        return self.parameters

    def mean_diagonal(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """The trace over the number of parameters."""
        del key
        leaves = jax.tree.leaves(self._diagonal())
        return sum(leaf.sum() for leaf in leaves) / sum(leaf.size for leaf in leaves)

    def by_block(
        self,
        layer: Callable[[Any, Array], Array],
        other: Callable[[Any, Array], Array],
        vector: Model,
        parts: tuple[Sequence[Any], Sequence[Any]] | None = None,
    ) -> Model:
        """A tree from one: `layer` is given a block and a matrix [side, unit], `other` a diagonal and a leaf.

        `parts` are other things than the blocks and diagonals.
        """
        blocks, diagonals = (self.blocks, self.diagonals) if parts is None else parts
        given, structure = jax.tree.flatten(vector)
        leaves = list(given)
        for view, block in zip(self.layers, blocks, strict=True):
            from_matrix(view, layer(block, to_matrix(view, given)), leaves)
        for index, diagonal in zip(self.others, diagonals, strict=True):
            leaves[index] = other(diagonal, given[index])
        return jax.tree.unflatten(structure, leaves)

    def _diagonal(self) -> Model:
        def whole(block: _Block, matrix: Array) -> Array:
            if isinstance(block, KroneckerBlock):
                return jnp.outer(jnp.diagonal(block.inputs), diagonal_of(block.outputs))
            return jnp.diagonal(block.matrix).reshape(matrix.shape)

        return self.by_block(whole, lambda diagonal, leaf: diagonal, self.parameters)


class Averages(NamedTuple):
    """Exponential averages of blocks and diagonals from zero on, and the sum of the weights so far."""

    blocks: tuple[_Block, ...]
    diagonals: tuple[Array, ...]
    weight: Float[Array, ""]


def kronecker_blocks(metric: TaskMetric | None = None, *, decay: float = 0.0) -> TaskMetric:
    """A x G for every layer, from the factor of a metric (of one drawn target a row by default).

    With `decay`, an exponential average of A and of G over the times at which they are measured.
    """
    return _of_layers(metric, _kronecker, decay)


def exact_blocks(
    metric: TaskMetric | None = None, *, decay: float = 0.0, largest: int = _LARGEST
) -> TaskMetric:
    """The exact block of every layer of up to `largest` parameters, and A x G for the others."""

    def make(rows: LayerRows) -> _Block:
        size = rows.inputs.shape[-1] * rows.outputs.shape[-1]
        return _exact(rows) if size <= largest else _kronecker(rows)

    return _of_layers(metric, make, decay)


def _of_layers(metric: TaskMetric | None, make: _Make, decay: float) -> TaskMetric:
    if not 0 <= decay < 1:
        raise InputError(f"the decay of an average is a number from 0 to below 1, got {decay}")

    def of_task(task: Task) -> Metric:
        whole = (monte_carlo_fisher() if metric is None else metric)(task)

        def measure(
            key: PRNGKeyArray, carry: Carry, model: Model, batch: TaskBatch
        ) -> tuple[LayerBlocks, Carry]:
            curvature, _ = whole.measure(key, (), model, batch)
            if not isinstance(curvature, Curvature) or curvature.form.root is None:
                raise InputError(
                    "blocks of layers need a metric with a factor: fisher() of linear(), sigmoid() or "
                    "softmax(), or one of drawn or given targets; got another metric, or another output"
                )
            return _measured(curvature, make, drawn=metric is None), carry

        fresh = Metric(lambda key, model, batch: (), measure)
        return _averaging(fresh, decay) if decay else fresh

    return of_task


def _averaging(fresh: Metric, decay: float) -> Metric:
    """The exponential average of blocks; what is carried is corrected for the zeros that it began at."""

    def init(key: PRNGKeyArray, model: Model, batch: TaskBatch | None) -> Averages:
        if batch is None:
            raise InputError(
                "an average of blocks needs the shape of a batch before the first one; give example=..."
            )
        shapes = jax.eval_shape(lambda *given: fresh.measure(given[0], (), *given[1:])[0], key, model, batch)
        return Averages(*tree.zeros((shapes.blocks, shapes.diagonals)), jnp.zeros((), _kind(model)))

    def measure(
        key: PRNGKeyArray, carry: Averages, model: Model, batch: TaskBatch
    ) -> tuple[LayerBlocks, Averages]:
        found, _ = fresh.measure(key, (), model, batch)
        parts = tree.blend(decay, (carry.blocks, carry.diagonals), (found.blocks, found.diagonals))
        weight = decay * carry.weight + (1 - decay)
        blocks, diagonals = jax.tree.map(lambda leaf: leaf / weight, parts)
        corrected = LayerBlocks(model, blocks, diagonals, found.layers, found.others)
        return corrected, Averages(*parts, weight)

    return Metric(init, measure)


def _measured(curvature: Curvature, make: _Make, *, drawn: bool) -> LayerBlocks:
    """The blocks; what is `drawn` only to estimate the Fisher is left out where that is known."""
    traced = traced_network(curvature.task.network, curvature.parameters, curvature.inputs)
    check_apart(curvature.task.network, curvature.parameters, curvature.inputs)
    if traced.others:
        said = "; ".join(other_lines(traced, curvature.parameters))
        warnings.warn(f"not all parameters belong to layers: {said}", UserWarning, stacklevel=2)
    rows, _ = jax.vmap(lambda row: _row(traced, curvature, row, ()))(curvature.rows)
    if drawn:
        rows = [_with_known(layer, curvature, one) for layer, one in zip(traced.layers, rows, strict=True)]
    blocks = tuple(make(one) for one in rows)
    diagonals = tuple(_diagonals(traced, curvature)) if traced.others else ()
    return LayerBlocks(curvature.parameters, blocks, diagonals, traced.layers, tuple(traced.others))


def _diagonals(traced: TracedNetwork, curvature: Curvature) -> list[Float[Array, "..."]]:
    """The mean squared gradients of what belongs to no layer: of all rows at once where they are small."""
    others, number = tuple(traced.others), curvature.rows.number
    leaves = [jax.tree.leaves(curvature.parameters)[index] for index in others]
    squares = lambda row: _row(traced, curvature, row, others)[1]  # noqa: E731
    if number * sum(leaf.nbytes for leaf in leaves) <= _ROOM_MB * 2**20:
        return [square.mean(axis=0) for square in jax.vmap(squares)(curvature.rows)]
    add = lambda sums, row: (tree.add(sums, squares(row)), None)  # noqa: E731
    sums, _ = jax.lax.scan(add, tree.zeros(leaves), curvature.rows)
    return [total / number for total in sums]


def _row(
    traced: TracedNetwork, curvature: Curvature, row: Examples, others: tuple[int, ...]
) -> tuple[list[LayerRows], list[Float[Array, "..."]]]:
    """What the layers see of one row, the derivatives of their outputs; squared gradients of other leaves."""
    single = jax.tree.map(lambda leaf: leaf[None], row)
    leaves, inputs = jax.tree.leaves(curvature.parameters), jax.tree.leaves(single.inputs)

    def changed(changes: list[Array], values: list[Array]) -> tuple[Array, list[Array]]:
        given = list(leaves)
        for index, value in zip(others, values, strict=True):
            given[index] = value
        return changed_outputs(traced.program, traced.layers, [*given, *inputs], changes)

    zeros = [jnp.zeros(layer.result, leaves[layer.weight].dtype) for layer in traced.layers]
    outputs, pull, seen = jax.vjp(changed, zeros, [leaves[index] for index in others], has_aux=True)
    basis = jnp.eye(curvature.form.rank(outputs, single.targets), dtype=outputs.dtype)[:, None]
    root = lambda w: curvature.form.root(outputs, single.targets, w)  # type: ignore[misc]  # noqa: E731
    slopes, gradients = jax.vmap(lambda w: pull(root(w)))(basis)
    found = [
        LayerRows(_with_one(layer, given), jax.vmap(lambda d, own=layer: output_rows(own, d))(slope))
        for layer, given, slope in zip(traced.layers, seen, slopes, strict=True)
    ]
    return found, [(gradient**2).sum(axis=0) for gradient in gradients]


def _with_known(layer: TracedLayer, curvature: Curvature, rows: LayerRows) -> LayerRows:
    """The mean of the outputs' own Fisher, for the last layer of independent outputs."""
    known, network = curvature.task.output.curvature, curvature.task.network
    if known is None or not layer.last:
        return rows
    found = known(network(curvature.parameters, curvature.inputs))
    by_row = jax.vmap(lambda row: output_rows(layer, row.reshape(layer.result)))(found)
    return rows._replace(expected=by_row.mean(axis=(0, 1)))


def _with_one(layer: TracedLayer, rows: Float[Array, "position in"]) -> Float[Array, "position side"]:
    if layer.bias is None:
        return rows
    return jnp.concatenate([rows, jnp.ones((rows.shape[0], 1), rows.dtype)], axis=1)


def _kronecker(rows: LayerRows) -> KroneckerBlock:
    number, positions, side = rows.inputs.shape
    a, d = rows.inputs.reshape(-1, side), rows.outputs.reshape(-1, rows.outputs.shape[-1])
    outputs = d.T @ d / (number * positions) if rows.expected is None else rows.expected
    return KroneckerBlock(a.T @ a / number, outputs)


def diagonal_of(outputs: Array) -> Float[Array, " unit"]:
    """The diagonal of G."""
    return outputs if outputs.ndim == 1 else jnp.diagonal(outputs)


def times_outputs(matrix: Float[Array, "side unit"], outputs: Array) -> Float[Array, "side unit"]:
    """A matrix times G, or times anything that is diagonal where G is."""
    return matrix * outputs if outputs.ndim == 1 else matrix @ outputs


def _exact(rows: LayerRows) -> ExactBlock:
    found = jnp.einsum("nts,nktu->nksu", rows.inputs, rows.outputs)
    flat = found.reshape(-1, found.shape[2] * found.shape[3])
    return ExactBlock(flat.T @ flat / rows.inputs.shape[0])


def _product(block: _Block, matrix: Array) -> Array:
    if isinstance(block, KroneckerBlock):
        return times_outputs(block.inputs @ matrix, block.outputs)
    return (block.matrix @ matrix.ravel()).reshape(matrix.shape)


def _times(diagonal: Array, leaf: Array) -> Array:
    return diagonal * leaf


def _kind(model: Model) -> Any:
    return jax.tree.leaves(model)[0].dtype
