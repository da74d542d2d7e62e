"""Learn targets from inputs: a network and the output distribution.

    loss = -(1/n) sum_i log p(t_i | r(x_i))          [revisiting eq. 6], with the sign that is minimized

The rows that the metric sees are a plain part of the batch: the gradient's own (None), others, or
unlabeled ones, whose targets are None.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.core import Estimate, Model, Objective, stateless
from natgrad.errors import InputError
from natgrad.layers.outputs import Output

Network = Callable[[Model, Any], Array]


class Task(NamedTuple):
    """A network, from (parameters, inputs) to outputs with the rows first, and the output distribution."""

    network: Network
    output: Output


class Examples(NamedTuple):
    """Inputs, rows first (an array or a pytree of them), and their targets; None for unlabeled rows."""

    inputs: Any
    targets: Any = None

    @property
    def number(self) -> int:
        """How many rows there are."""
        return jax.tree.leaves(self.inputs)[0].shape[0]


class TaskBatch(NamedTuple):
    """A batch: the rows of the gradient, and those of the metric where they are others."""

    rows: Examples
    metric: Examples | None = None

    @property
    def metric_rows(self) -> Examples:
        """The rows on which the metric is computed."""
        return self.rows if self.metric is None else self.metric


def task_loss(task: Task, parameters: Model, rows: Examples) -> Float[Array, ""]:
    """The mean of -log p(t | r) over the rows."""
    return -task.output.log_prob(task.network(parameters, rows.inputs), rows.targets).mean()


def supervised(task: Task) -> Objective:
    """Value and gradient of the loss; what is handed on to the metric is the batch itself."""

    def estimate(key: PRNGKeyArray, model: Model, batch: TaskBatch) -> Estimate:
        del key
        check_batch(task, model, batch)
        value, gradient = jax.value_and_grad(lambda p: task_loss(task, p, batch.rows))(model)
        return Estimate(value, gradient, batch, {})

    return stateless(estimate, lambda model, batch: task_loss(task, model, batch.rows))


def check_batch(task: Task, parameters: Model, batch: TaskBatch) -> None:
    """Refuse, in one sentence, what cannot be trained on; values are seen only outside jit."""
    check_parameters(parameters)
    outputs = check_outputs(task, parameters, batch.rows)
    if batch.rows.targets is None:
        raise InputError("the rows of the gradient have no targets; only the metric's rows may be unlabeled")
    task.output.check(outputs, batch.rows.targets)
    if batch.metric is not None:
        check_metric_rows(batch.rows, batch.metric)


def check_parameters(parameters: Model) -> None:
    """Every leaf must be a floating-point array: all of them are in the metric."""
    leaves = jax.tree_util.tree_flatten_with_path(parameters)[0]
    if not leaves:
        raise InputError("the parameters have no leaves; give at least one array")
    for path, leaf in leaves:
        kind = np.asarray(leaf).dtype if not hasattr(leaf, "dtype") else leaf.dtype
        if not jnp.issubdtype(kind, jnp.floating):
            raise InputError(
                f"every leaf of the parameters is trained and must be floating-point, "
                f"but {jax.tree_util.keystr(path) or 'the only one'} is {kind}; "
                "keep counters and masks out of the parameters"
            )
        if jnp.finfo(kind).bits < 32:
            raise InputError(
                f"systems are solved in float32 or float64, but "
                f"{jax.tree_util.keystr(path) or 'the only leaf'} of the parameters is {kind}; keep the "
                "parameters in float32 and cast them inside of the network"
            )


def check_outputs(task: Task, parameters: Model, rows: Examples) -> jax.ShapeDtypeStruct:
    """The outputs' shape: floating-point, and as many rows as there are inputs."""
    if rows.number == 0:
        raise InputError("a batch needs at least one row, got none")
    outputs = jax.eval_shape(task.network, parameters, rows.inputs)
    shape = getattr(outputs, "shape", None)
    if not shape or shape[0] != rows.number:
        raise InputError(
            f"the network must return one array with the {rows.number} rows first, got "
            f"{'a tree' if shape is None else f'shape {shape}'}; vmap a network of single rows"
        )
    if not jnp.issubdtype(outputs.dtype, jnp.floating):
        raise InputError(f"the network must return floating-point outputs, got {outputs.dtype}")
    return outputs


def check_metric_rows(rows: Examples, metric: Examples) -> None:
    """The metric's rows must be like the gradient's; only their number may differ."""
    kinds = lambda tree: jax.tree.map(lambda leaf: (leaf.shape[1:], str(leaf.dtype)), tree)  # noqa: E731
    if kinds(rows.inputs) != kinds(metric.inputs):
        raise InputError(
            f"rows of the metric batch must be like the gradient's, {_kind(rows.inputs)}, "
            f"got {_kind(metric.inputs)}; only the number of rows may differ"
        )


def check_scalar(function: Callable[..., Any], *arguments: Any) -> None:
    """A loss must return one number."""
    shape = getattr(jax.eval_shape(function, *arguments), "shape", "a tree")
    if shape != ():
        raise InputError(f"the loss must return one number, got shape {shape}; take its mean over the rows")


def _kind(inputs: Any) -> str:
    kinds = [f"{leaf.dtype}{list(leaf.shape[1:])}" for leaf in jax.tree.leaves(inputs)]
    return " and ".join(kinds)
