"""What is known of networks without JAX: settings by kind and method, columns of the trace, commands.

A line of `MODELS` and a line of `METHODS` say which settings a kind and a method read.
"""

import itertools
from typing import Any

from natgrad.config import own_length, own_steps, rate_ends, sections
from natgrad.config.sections import with_defaults
from natgrad.errors import InputError
from natgrad.models import registry
from natgrad.models.network.sections import (
    AutoencoderModel,
    ConvolutionalModel,
    Data,
    Factors,
    HessianFree,
    Krylov,
    NaturalMetric,
    PerceptronModel,
    Tonga,
    Units,
)
from natgrad.models.registry import METRIC_NAMES, NATS, TEST_LL, Column, Settings, Spec

_POOL = 2  # pixels of a side that a bank's maximum makes one of


class Shape(registry.Shape):
    """What the data decide: the width of inputs, their shape as images, and how many outputs targets need."""

    outputs: int

    @classmethod
    def of(cls, config: Any, dataset: Any) -> "Shape":
        """The sizes of a config's network for a data set."""
        outputs = dataset.visible if config.model.kind == "autoencoder" else 1
        if config.model.output == "softmax":
            outputs += max(int(found.max()) for found in dataset.labels.values())
        return cls(visible=dataset.visible, image_shape=dataset.image_shape, outputs=outputs)


_CLASSES = 1_000_000
_MODELS: dict[str, type[sections.ModelSection]] = {
    "mlp": PerceptronModel,
    "convnet": with_defaults(ConvolutionalModel, layers=(100,)),
    "autoencoder": with_defaults(AutoencoderModel, layers=(200, 30)),
}
_METHODS: dict[str, dict[str, Any]] = {
    "natural": {
        "metric": with_defaults(NaturalMetric, damping=0.1),
        "optimizer": with_defaults(sections.Optimizer, learning_rate=1.0),
    },
    "hessian-free": {
        "metric": with_defaults(HessianFree, damping=1.0, iterations=50, warm_start=0.95),
        "optimizer": with_defaults(sections.Rate, learning_rate=1.0),
    },
    "krylov": {"metric": Krylov, "optimizer": with_defaults(sections.Scheduled, learning_rate=1.0)},
    "tonga": {"metric": with_defaults(Tonga, damping=0.1), "optimizer": sections.Optimizer},
    "units": {"metric": with_defaults(Units, damping=0.1, iterations=5), "optimizer": sections.Optimizer},
    "kfac": {
        "metric": with_defaults(Factors, damping=0.1, refresh=20),
        "optimizer": with_defaults(sections.Optimizer, name="momentum", learning_rate=0.01),
    },
    "plain": {"optimizer": sections.Optimizer},
}
_Training = with_defaults(sections.Training, epochs=20, batch_size=128)
_Evaluation = with_defaults(sections.Evaluation, every=1, rows=0)


def _settings(kind: str, method: str) -> type[sections.RunSettings]:
    checks = [own_length] if method in ("natural", "tonga", "kfac") else []
    checks += [own_steps] if method in ("natural", "tonga", "units", "kfac") else []
    return sections.compose(
        kind,
        method,
        *checks,
        data=Data,
        model=_MODELS[kind],
        **_METHODS[method],
        training=_Training,
        evaluation=_Evaluation,
    )


def check(config: Any, dataset: Any) -> None:
    """Refuse rows that are not images where images are needed, and networks that do not fit the memory."""
    from natgrad.training.checks import check_weights  # which reads data, and settings should not

    chosen = config.model
    if chosen.kind == "convnet" and dataset.image_shape is None:
        name = dataset.name
        raise InputError(f"a convnet needs images, the rows of {name} are not images; give --image-shape")
    check_weights(_weights(chosen, dataset))
    if chosen.output == "softmax" and dataset.labels is not None:
        _check_classes(max(found.max() for found in dataset.labels.values()))


def _check_classes(largest: Any) -> None:
    """Refuse labels that are names, such as numbers of articles: every number up to them would be a class."""
    if not largest <= _CLASSES:  # nor is nan
        raise InputError(
            f"expected classes numbered from 0 to at most {_CLASSES}, got the label {largest}; renumber the "
            "labels, for example by numpy.unique(labels, return_inverse=True)"
        )


def _weights(chosen: Any, dataset: Any) -> int:
    """Weights and biases, without those of the outputs that labels ask for."""
    sizes, banks = (dataset.visible, *chosen.layers), 0
    if chosen.kind == "autoencoder":
        sizes = (*sizes, *sizes[-2::-1])
    elif chosen.kind == "convnet":
        channels, sides = 1, dataset.image_shape
        for count in chosen.filters:
            banks += count * (channels * chosen.filter_width**2 + 1)
            channels, sides = count, [max(side - chosen.filter_width + 1, 0) // _POOL for side in sides]
        sizes = (channels * sides[0] * sides[1], *chosen.layers)
    return banks + sum((low + 1) * up for low, up in itertools.pairwise(sizes))


SPEC = Spec(
    kinds={
        "mlp": "a perceptron, for classes or numbers",
        "convnet": "a convolutional network, for images",
        "autoencoder": "a perceptron whose targets are its inputs",
    },
    settings=Settings(
        _settings,
        [reader for reader in itertools.product(_MODELS, _METHODS) if reader != ("convnet", "units")],
    ),
    methods={
        "natural": "natural gradient: the exact Fisher of the whole network on the metric's rows (sampled by "
        "metric.drawn), by default solved approximately, by truncated conjugate gradients",
        "hessian-free": "Hessian-Free: Gauss-Newton, truncated conjugate gradients, a line search",
        "krylov": "Krylov subspace descent: the loss is minimized in a small subspace",
        "tonga": "the centered covariance of gradients in place of the Fisher",
        "units": "the exact block of the Fisher for every unit alone, by default solved approximately",
        "kfac": "K-FAC: a block of the Fisher for every layer as a product of two factors, averaged and kept",
        "plain": "the gradient itself",
    },
    short={
        "layers": "model.layers",
        "activation": "model.activation",
        "output": "model.output",
        "filters": "model.filters",
        "labeled": "data.labeled",
        "metric_data": "metric.data",
        **METRIC_NAMES,
    },
    columns=(
        Column("valid_ll", "valid LL", NATS, higher=True, note="mean of log p(target given input)"),
        TEST_LL,
        Column("test_loss", "test loss", NATS, higher=False),
        Column(
            "valid_error",
            "valid error",
            "share of rows",
            higher=False,
            chart="Error",
            percent=True,
            note="dashed: validation, solid: test",
        ),
        Column(
            "test_error", "test error", "share of rows", higher=False, chart="Error", percent=True, final=True
        ),
        Column(
            "valid_squared_error",
            "valid squared error",
            higher=False,
            chart="Squared error",
            note="dashed: validation, solid: test",
        ),
        Column("test_squared_error", "squared error", higher=False, chart="Squared error", final=True),
    ),
    criterion="valid_ll",
    headline=("test_error", "test_squared_error"),
    shape=Shape,
    kind="natgrad.models.network.kind:KIND",
    is_scheduled=rate_ends,
    check=check,
    commands={"evaluate": "natgrad.models.network.commands:evaluate"},
    estimators={
        "NaturalClassifier": "natgrad.models.network.estimator:NaturalClassifier",
        "NaturalRegressor": "natgrad.models.network.estimator:NaturalRegressor",
    },
)
