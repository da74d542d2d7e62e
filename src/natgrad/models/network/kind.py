"""Networks as a kind of model: a task from a config, rows and batches from data, a `Problem` from both."""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from natgrad.core import Kind, Model, Panel, Problem
from natgrad.data import Dataset
from natgrad.devices import in_one_message
from natgrad.errors import InputError
from natgrad.evaluate.panels import reconstructions
from natgrad.layers.convolution import convolutional, fresh_convolutional
from natgrad.layers.outputs import Output, linear, sigmoid, softmax
from natgrad.layers.perceptron import fresh_perceptron, perceptron
from natgrad.layers.task import Task
from natgrad.models.network import examples
from natgrad.models.network.examples import StoredExamples
from natgrad.models.network.figures import ErrorMeasure, misclassified, squared
from natgrad.models.network.methods import ACTIVATIONS, algorithm
from natgrad.models.network.spec import Shape
from natgrad.models.network.trained import TrainedNetwork
from natgrad.training.checks import class_loss, independent_loss
from natgrad.updates.first_order import rate_schedule

OUTPUTS: dict[str, Callable[[Any], Output]] = {
    "softmax": lambda chosen: softmax(),
    "sigmoid": lambda chosen: sigmoid(),
    "linear": lambda chosen: linear(chosen.beta or 1.0),
}

ERROR_MEASURES: dict[str, ErrorMeasure] = {
    "softmax": ErrorMeasure("error", misclassified, lambda outputs: math.log(outputs)),
    "sigmoid": ErrorMeasure("squared_error", squared(jax.nn.sigmoid), lambda outputs: outputs * math.log(2)),
    "linear": ErrorMeasure("squared_error", squared(lambda r: r), lambda outputs: 0.5 * outputs),
}
"""How outputs are scored beside the likelihood, and the loss of one that knows nothing."""

PREDICTIONS: dict[str, tuple[Callable[[jax.Array], jax.Array], Callable[[np.ndarray], np.ndarray]]] = {
    "softmax": (jax.nn.softmax, lambda means: means.argmax(axis=1)),
    "sigmoid": (jax.nn.sigmoid, lambda means: means),
    "linear": (lambda outputs: outputs, lambda means: means),
}
"""From outputs to the mean of the target, and from that to what is predicted."""


def _deep(chosen: Any, sizes: Shape) -> tuple[int, ...]:
    return sizes.visible, *chosen.layers, sizes.outputs


def _mirrored(chosen: Any, sizes: Shape) -> tuple[int, ...]:
    return sizes.visible, *chosen.layers, *chosen.layers[-2::-1], sizes.outputs


def _fresh_filters(key: PRNGKeyArray, chosen: Any, sizes: Shape) -> Model:
    image = (1, *(sizes.image_shape or (1, sizes.visible)))
    layers = (*chosen.layers, sizes.outputs)
    return fresh_convolutional(key, image, chosen.filters, layers, width=chosen.filter_width)


def _filtered(chosen: Any, sizes: Shape) -> Callable[[Model, Any], jax.Array]:
    inner = convolutional(ACTIVATIONS[chosen.activation])
    image = sizes.image_shape or (1, sizes.visible)
    return lambda parameters, rows: inner(parameters, rows.reshape(-1, 1, *image))


def _layered(chosen: Any, sizes: Shape) -> Callable[[Model, Any], jax.Array]:
    del sizes
    return perceptron(ACTIVATIONS[chosen.activation])


_MODELS: dict[str, tuple[Callable[..., Model], Callable[..., Any]]] = {
    "mlp": (lambda key, chosen, sizes: fresh_perceptron(key, _deep(chosen, sizes)), _layered),
    "convnet": (_fresh_filters, _filtered),
    "autoencoder": (lambda key, chosen, sizes: fresh_perceptron(key, _mirrored(chosen, sizes)), _layered),
}


def fresh(key: PRNGKeyArray, settings: Any, shape: Shape) -> Model:
    """The parameters of a new network."""
    return _MODELS[settings.model.kind][0](key, settings.model, shape)


@lru_cache(maxsize=16)
def task_of(chosen: Any, shape: Shape) -> Task:
    """The network and the distribution of its targets: the same object, so that programs know it again."""
    return Task(in_one_message(_MODELS[chosen.kind][1](chosen, shape)), OUTPUTS[chosen.output](chosen))


TARGETS: dict[str, examples.Targets] = {
    "softmax": examples.class_targets,
    "sigmoid": examples.number_targets,
    "linear": examples.number_targets,
}
METRIC_ROWS: dict[str, Callable[[StoredExamples, int, int], examples.MetricRows]] = {
    "same": examples.same,
    "different": examples.different,
    "unlabeled": examples.unlabeled,
    "both": examples.both,
}


def problem(key: PRNGKeyArray, settings: Any, dataset: Dataset) -> Problem:
    """What a session trains: a network of this config on these data."""
    del key
    chosen, size = settings.model, settings.training.batch_size
    if chosen.kind == "convnet" and dataset.image_shape is None:
        raise InputError(
            f"a convnet needs images, the rows of {dataset.name} are not images; give --image-shape"
        )
    rows, parts = _examples(settings, dataset), _held_out(settings, dataset, settings.evaluation.rows)
    shape = Shape.of(settings, dataset)
    task, error_measure = task_of(chosen, shape), ERROR_MEASURES[chosen.output]
    arrays = jax.eval_shape(lambda: fresh(jax.random.key(0), settings, shape))
    _check_targets(task, arrays, rows, parts)
    return Problem(
        rows=rows,
        number=len(rows.labeled.values),
        draw=examples.batches_of(size, _metric_rows(settings, rows)),
        algorithm=partial(algorithm, settings, task),
        rate=partial(rate_schedule, settings.optimizer),
        paced=True,
        operations=lambda stage: _operations(settings, arrays, dataset.image_shape),
        ignorance=error_measure.ignorance(shape.outputs),
        independent=_independent(chosen, dataset),
        measure=lambda state: error_measure.measure(task, state.used, **parts),
    )


def _independent(chosen: Any, dataset: Dataset) -> float:
    """The loss of a network that says the classes' frequencies, or the mean row; of numbers none is known."""
    if chosen.output == "softmax" and dataset.labels is not None:
        return class_loss(dataset.labels["train"])
    return (
        independent_loss(dataset) if chosen.output == "sigmoid" and chosen.kind == "autoencoder" else math.inf
    )


def held_out_figures(settings: Any, dataset: Dataset, model: Model, *, rows: int) -> dict[str, Any]:
    """The figures of a network on so many held-out rows of each split (0: all)."""
    task, parts = task_of(settings.model, Shape.of(settings, dataset)), _held_out(settings, dataset, rows)
    return ERROR_MEASURES[settings.model.output].measure(task, model, **parts)


def _examples(settings: Any, dataset: Dataset) -> StoredExamples:
    """The rows to learn from."""
    labeled, seed = settings.data.labeled, settings.data.split_seed
    return examples.examples_of(dataset, _targets(settings.model), labeled=labeled, seed=seed)


def _held_out(settings: Any, dataset: Dataset, limit: int) -> dict[str, Any]:
    """The rows to evaluate on, by split."""
    targets, seed = _targets(settings.model), settings.data.split_seed
    return {
        split: examples.held_out(dataset, targets, split, limit=limit, seed=seed)
        for split in ("valid", "test")
    }


def _metric_rows(settings: Any, rows: StoredExamples) -> examples.MetricRows:
    if not hasattr(settings, "metric"):
        return examples.same(rows, settings.training.batch_size, 0)
    chosen = settings.metric
    return METRIC_ROWS[chosen.data](rows, settings.training.batch_size, chosen.rows)


def _operations(settings: Any, arrays: Model, image: tuple[int, int] | None) -> int:
    passes = 1 + getattr(getattr(settings, "metric", None), "iterations", 0)
    return 6 * _products(arrays, image) * settings.training.batch_size * passes


def trained(settings: Any, shape: Shape, model: Model, carry: dict[str, Any]) -> TrainedNetwork:
    """The network as its user sees it."""
    del carry
    task, (mean, predicts) = task_of(settings.model, shape), PREDICTIONS[settings.model.output]
    real = settings.data.binarize == "real"
    return TrainedNetwork(model, task.network, mean, predicts, shape.visible, real)


def panels(run: Any, dataset: Dataset) -> dict[str, Panel]:
    """Reconstructions of test rows, of a network that makes any."""
    if run.config.model.kind != "autoencoder":
        return {}
    text = "Test rows, and below or beside them what the network makes of them."
    return {"Reconstructions": reconstructions(run, dataset, text)}


def _targets(chosen: Any) -> examples.Targets:
    return examples.itself if chosen.kind == "autoencoder" else TARGETS[chosen.output]


def _products(shape: Model, image: tuple[int, int] | None) -> int:
    """Products of a row's forward pass: a filter is used at every pixel."""
    height, width = image or (1, 1)
    return sum(leaf.size * (height * width if leaf.ndim == 4 else 1) for leaf in jax.tree.leaves(shape))


def _check_targets(network: Task, shape: Model, rows: StoredExamples, parts: dict[str, Any]) -> None:
    """Refuse targets that the output distribution cannot produce, while their values can be seen."""
    for part in parts.values():
        outputs = jax.eval_shape(network.network, shape, part.inputs)
        network.output.check(outputs, part.targets)
    targets = rows.labeled.values if rows.targets is None else rows.targets
    if rows.targets is not None or targets.dtype.kind == "f":  # bytes of inputs are in [0, 1] by their levels
        whole = jax.ShapeDtypeStruct((len(targets), *outputs.shape[1:]), outputs.dtype)
        network.output.check(whole, targets)


KIND = Kind(fresh, problem, trained, panels)
