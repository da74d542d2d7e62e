"""The exact blocks of a perceptron's metric, one per unit, as a Helmholtz machine has them.

    F_j = (1/n) sum_r curvature_jr u_r u_r^T,     u_r = (inputs_r, 1),
    curvature_jr = (dr/da_j)^T M (dr/da_j),       a_j the unit's sum, M the output distribution's Fisher

These are diagonal blocks of the full metric, exactly. The curvature takes one reverse pass for every
output, or with `samples` one for every drawn target (unbiased; exact in the last layer where M is
diagonal). The blocks are `UnitBlocks`, for which solvers over all units at once exist already.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from natgrad.core import Carry, Metric, Model
from natgrad.errors import InputError
from natgrad.layers.bernoulli import Layer
from natgrad.layers.outputs import Output
from natgrad.layers.perceptron import Activation, Perceptron, forward_pass
from natgrad.layers.task import Task, TaskBatch
from natgrad.metrics.blocks import UnitBlocks
from natgrad.metrics.curvature import TaskMetric
from natgrad.metrics.layered import LayeredFisher
from natgrad.metrics.scores import LayerScores


def exact_units(activation: Activation) -> TaskMetric:
    """The blocks from every output's reverse pass."""

    def of_task(task: Task) -> Metric:
        def blocks(key: PRNGKeyArray, layers: Perceptron, inputs: Array) -> tuple[UnitBlocks, ...]:
            del key
            root = task.output.root
            if root is None:
                raise InputError(
                    "exact unit blocks need a distribution with `root`, got one without; use sampled_units"
                )
            entered, outputs, pull = _sums(layers, inputs, activation)
            basis = jnp.eye(outputs[0].size, dtype=outputs.dtype).reshape(-1, 1, *outputs.shape[1:])
            columns = lambda w: root(outputs, jnp.broadcast_to(w, outputs.shape))  # noqa: E731
            return _blocks(entered, _mean_square(lambda w: pull(columns(w)), basis, scale=1.0))

        return _measuring(blocks)

    return of_task


def sampled_units(activation: Activation, samples: int = 1) -> TaskMetric:
    """The blocks from drawn targets: a reverse pass each, however many outputs there are."""

    def of_task(task: Task) -> Metric:
        def blocks(key: PRNGKeyArray, layers: Perceptron, inputs: Array) -> tuple[UnitBlocks, ...]:
            output, sample = task.output, task.output.sample
            if sample is None:
                raise InputError(
                    "sampled unit blocks need a distribution with `sample`, got one without; use exact_units"
                )
            entered, outputs, pull = _sums(layers, inputs, activation)

            def scores(k: PRNGKeyArray) -> tuple[Array, ...]:
                drawn = sample(k, outputs)  # ~ p(t | r)
                return pull(jax.grad(lambda r: output.log_prob(r, drawn).sum())(outputs))

            found = _mean_square(scores, jax.random.split(key, samples), scale=1 / samples)
            if output.curvature is not None:
                found = (*found[:-1], output.curvature(outputs))
            return _blocks(entered, found)

        return _measuring(blocks)

    return of_task


def drawn_scores(
    key: PRNGKeyArray, layers: Perceptron, inputs: Array, activation: Activation, output: Output
) -> tuple[tuple[LayerScores, ...], Array, Array]:
    """The scores of a drawn target for every row, layer by layer; outputs and targets beside them."""
    if output.sample is None:
        raise InputError("scores need a distribution with `sample`, got one without; use fisher")
    entered, outputs, pull = _sums(layers, inputs, activation)
    drawn = output.sample(key, outputs)  # ~ p(t | r)
    slopes = pull(jax.grad(lambda r: output.log_prob(r, drawn).sum())(outputs))
    return tuple(map(LayerScores, entered, slopes)), outputs, drawn


def _measuring(blocks: Callable[[PRNGKeyArray, Perceptron, Array], tuple[UnitBlocks, ...]]) -> Metric:
    def measure(
        key: PRNGKeyArray, carry: Carry, model: Model, batch: TaskBatch
    ) -> tuple[LayeredFisher, Carry]:
        inputs = batch.metric_rows.inputs
        return LayeredFisher(blocks(key, model, inputs.reshape(inputs.shape[0], -1))), carry

    return Metric(lambda key, model, batch: (), measure)


def _sums(
    layers: Perceptron, inputs: Array, activation: Activation
) -> tuple[tuple[Array, ...], Array, Callable[[Array], tuple[Array, ...]]]:
    """What enters every layer, the outputs, and the reverse pass to every unit's sum, [row, out] a layer."""
    if not all(isinstance(layer, Layer) for layer in layers):
        raise InputError("unit blocks need a perceptron, a tuple of layers; use fisher for any other network")
    shifts = tuple(jnp.zeros((inputs.shape[0], layer.bias.size), layer.bias.dtype) for layer in layers)
    outputs, pull, entered = jax.vjp(
        lambda s: forward_pass(layers, inputs, activation, s), shifts, has_aux=True
    )
    return entered, outputs, lambda w: pull(w)[0]


def _mean_square(
    pull: Callable[[Array], tuple[Array, ...]], probes: Array, *, scale: float
) -> tuple[Array, ...]:
    """The sum of the squared derivatives over probes, times `scale`, one probe after the other."""
    squares = lambda w: jax.tree.map(jnp.square, pull(w))  # noqa: E731
    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(squares, probes[0]))
    add = lambda total, w: (jax.tree.map(jnp.add, total, squares(w)), None)  # noqa: E731
    total, _ = jax.lax.scan(add, start, probes)
    return jax.tree.map(lambda leaf: scale * leaf, total)


def _blocks(entered: tuple[Array, ...], curvature: tuple[Array, ...]) -> tuple[UnitBlocks, ...]:
    pairs = zip(entered, curvature, strict=True)
    return tuple(UnitBlocks(values.T, own.T / own.shape[0]) for values, own in pairs)
