"""Networks by the names of a config: model and law -> task, data -> rows and batches, all -> a `Problem`."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from natgrad import config
from natgrad.core import Model, Problem
from natgrad.data import Dataset
from natgrad.errors import InputError
from natgrad.evaluate.targets import Judge, misclassified, squared
from natgrad.limits import network_chunk
from natgrad.models.networks import convolutional, fresh_convolutional, fresh_perceptron, perceptron
from natgrad.models.outputs import Law, linear, sigmoid, softmax
from natgrad.network_methods import ACTIVATIONS, algorithm
from natgrad.objectives import examples
from natgrad.objectives.examples import Examples
from natgrad.objectives.supervised import Task

LAWS: dict[str, Callable[[config.Model], Law]] = {
    "softmax": lambda chosen: softmax(),
    "sigmoid": lambda chosen: sigmoid(),
    "linear": lambda chosen: linear(chosen.beta or 1.0),
}

JUDGES: dict[str, Judge] = {
    "softmax": Judge("error", misclassified, lambda outputs: math.log(outputs)),
    "sigmoid": Judge("squared_error", squared(jax.nn.sigmoid), lambda outputs: outputs * math.log(2)),
    "linear": Judge("squared_error", squared(lambda r: r), lambda outputs: 0.5 * outputs),
}
"""How a law's outputs are judged beside the likelihood, and the loss of one that knows nothing."""

PREDICTIONS: dict[str, tuple[Callable[[jax.Array], jax.Array], Callable[[np.ndarray], np.ndarray]]] = {
    "softmax": (jax.nn.softmax, lambda means: means.argmax(axis=1)),
    "sigmoid": (jax.nn.sigmoid, lambda means: means),
    "linear": (lambda outputs: outputs, lambda means: means),
}
"""From outputs to the mean of the target, and from that to what is predicted."""


class Sizes(NamedTuple):
    """What the data say of a network: the width of its inputs, their shape as images, and its outputs."""

    visible: int
    image: tuple[int, int] | None
    outputs: int


def _deep(chosen: config.Model, sizes: Sizes) -> tuple[int, ...]:
    return sizes.visible, *chosen.layers, sizes.outputs


def _mirrored(chosen: config.Model, sizes: Sizes) -> tuple[int, ...]:
    return sizes.visible, *chosen.layers, *chosen.layers[-2::-1], sizes.outputs


def _fresh_filters(key: PRNGKeyArray, chosen: config.Model, sizes: Sizes) -> Model:
    image = (1, *(sizes.image or (1, sizes.visible)))
    layers = (*chosen.layers, sizes.outputs)
    return fresh_convolutional(key, image, chosen.filters or (), layers, width=chosen.filter_width or 5)


def _filtered(chosen: config.Model, sizes: Sizes) -> Callable[[Model, Any], jax.Array]:
    inner = convolutional(ACTIVATIONS[chosen.activation or "tanh"])
    image = sizes.image or (1, sizes.visible)
    return lambda parameters, rows: inner(parameters, rows.reshape(-1, 1, *image))


def _layered(chosen: config.Model, sizes: Sizes) -> Callable[[Model, Any], jax.Array]:
    del sizes
    return perceptron(ACTIVATIONS[chosen.activation or "tanh"])


MODELS: dict[str, tuple[Callable[..., Model], Callable[..., Any]]] = {
    "mlp": (lambda key, chosen, sizes: fresh_perceptron(key, _deep(chosen, sizes)), _layered),
    "convnet": (_fresh_filters, _filtered),
    "autoencoder": (lambda key, chosen, sizes: fresh_perceptron(key, _mirrored(chosen, sizes)), _layered),
}


def fresh(key: PRNGKeyArray, chosen: config.Model, sizes: Sizes) -> Model:
    """The parameters of a new network."""
    return MODELS[chosen.kind][0](key, chosen, sizes)


def task(chosen: config.Model, sizes: Sizes) -> Task:
    """The network and the law of its targets."""
    return Task(MODELS[chosen.kind][1](chosen, sizes), LAWS[chosen.output or "softmax"](chosen))


TARGETS: dict[str, examples.Targets] = {
    "softmax": examples.classes,
    "sigmoid": examples.numbers,
    "linear": examples.numbers,
}
METRIC_ROWS: dict[str, Callable[[Examples, int, int], examples.MetricRows]] = {
    "same": examples.same,
    "different": examples.different,
    "unlabeled": examples.unlabelled,
    "both": examples.both,
}


def problem(settings: config.Config, dataset: Dataset) -> Problem:
    """What a session trains: a network of this config on these data."""
    chosen, seed, size = settings.model, settings.data.split_seed, settings.training.batch_size
    if chosen.kind == "convnet" and dataset.image_shape is None:
        raise InputError(f"a convnet needs images, the rows of {dataset.name} are none; give --image-shape")
    targets, limit = _targets(chosen), settings.evaluation.rows
    rows = examples.examples_of(dataset, targets, labelled=settings.data.labelled, seed=seed)
    parts = {s: examples.held_out(dataset, targets, s, limit=limit, seed=seed) for s in ("valid", "test")}
    sizes = Sizes(dataset.visible, dataset.image_shape, _outputs(chosen, dataset))
    network, judge = task(chosen, sizes), JUDGES[chosen.output or "softmax"]
    shape = jax.eval_shape(lambda: fresh(jax.random.key(0), chosen, sizes))
    _check_targets(network, shape, rows, parts)
    metric_rows = METRIC_ROWS[settings.metric.data or "same"](rows, size, settings.metric.rows)
    return Problem(
        fresh=lambda key: fresh(key, chosen, sizes),
        algorithm=lambda changed, steps: algorithm(changed, network, steps),
        rows=rows,
        number=len(rows.labelled.values),
        draw=examples.batches_of(size, metric_rows),
        measure=lambda model: judge.measure(network, model, **parts),
        scale=judge.ignorance(sizes.outputs),
        chunk=lambda samples: network_chunk(settings, _products(shape, dataset.image_shape)),
        outputs=sizes.outputs,
    )


def _targets(chosen: config.Model) -> examples.Targets:
    return examples.itself if chosen.kind == "autoencoder" else TARGETS[chosen.output or "softmax"]


def _outputs(chosen: config.Model, dataset: Dataset) -> int:
    """How many outputs the targets ask for."""
    if chosen.kind == "autoencoder":
        return dataset.visible
    labels = (dataset.labels or {}).values()
    return 1 + max(int(found.max()) for found in labels) if chosen.output == "softmax" else 1


def _products(shape: Model, image: tuple[int, int] | None) -> int:
    """Products of a row's forward pass: a filter is used at every pixel."""
    height, width = image or (1, 1)
    return sum(leaf.size * (height * width if leaf.ndim == 4 else 1) for leaf in jax.tree.leaves(shape))


def _check_targets(network: Task, shape: Model, rows: Examples, parts: dict[str, Any]) -> None:
    """Refuse targets that the law cannot produce, while their values can be seen."""
    for part in parts.values():
        outputs = jax.eval_shape(network.network, shape, part.inputs)
        network.law.check(outputs, part.targets)
    targets = rows.labelled.values if rows.targets is None else rows.targets
    if rows.targets is not None or targets.dtype.kind == "f":  # bytes of inputs are in [0, 1] by their levels
        whole = jax.ShapeDtypeStruct((len(targets), *outputs.shape[1:]), outputs.dtype)
        network.law.check(whole, targets)
