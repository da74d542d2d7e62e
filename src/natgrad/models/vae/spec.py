"""What is known of variational autoencoders without JAX: settings by method, columns, commands."""

from itertools import pairwise
from typing import Any

import numpy as np

from natgrad.config import own_length, own_steps, rate_ends, sections
from natgrad.config.sections import with_defaults
from natgrad.config.values import BinaryOrReal
from natgrad.data.dataset import average_of
from natgrad.errors import InputError
from natgrad.models.registry import METRIC_NAMES, NATS, TEST_LL, Column, MeasuredShape, Settings, Spec
from natgrad.models.vae.sections import (
    Alternation,
    Bounds,
    MetricOfBoth,
    MetricOfEach,
    NetworkPart,
    VariationalEvaluation,
    VariationalModel,
)


class Shape(MeasuredShape):
    """What the data decide: the size, the means, and how far values are from them."""

    spread: float

    @classmethod
    def of(cls, config: Any, dataset: Any) -> "Shape":
        """The size, the means and the root mean square distance from them."""
        known = MeasuredShape.of(config, dataset)
        levels, means = np.float32(dataset.levels), np.asarray(known.means, np.float32)
        spread = float(np.sqrt(average_of(dataset.train, lambda rows: (rows / levels - means) ** 2).mean()))
        return cls(**known.model_dump(), spread=max(spread, 1e-3))


_PARTS: dict[str, dict[str, Any]] = {
    "plain": {"optimizer": with_defaults(sections.Optimizer, name="adam", learning_rate=1e-3)},
    "two-step": {
        "metric": with_defaults(MetricOfEach, iterations=4),
        "generation": NetworkPart,
        "recognition": NetworkPart,
        "steps": Alternation,
        "optimizer": with_defaults(sections.Optimizer, name="momentum", learning_rate=0.01),
    },
    "natural": {
        "metric": MetricOfBoth,
        "optimizer": with_defaults(sections.Optimizer, learning_rate=1.0),
    },
}


def _units_are_dense(config: Any) -> None:
    """Unit blocks are those of dense layers."""
    if config.model.filters and config.metric.solver in ("units", "diagonal"):
        raise InputError(
            f"metric.solver {config.metric.solver} needs dense networks, got --filters; use kronecker, "
            "cg or dual, or leave --filters out"
        )


def _gain_is_known(config: Any) -> None:
    """Adaptive damping compares a step's gain with what was predicted: the loss must be one of the model."""
    if not config.metric.adaptive:
        return
    generation, recognition = config.objective.generation, config.objective.recognition
    if recognition == "wake":
        raise InputError(
            "metric.adaptive needs losses whose gain can be told, got objective.recognition wake, whose "
            "weights are those of one model; choose another one, or leave metric.adaptive out"
        )
    if config.method == "natural" and generation != recognition:
        raise InputError(
            f"metric.adaptive needs one loss for one system, got objective.generation {generation} and "
            f"objective.recognition {recognition}; give both the same, or use --method two-step"
        )


def _settings(kind: str, method: str) -> type[sections.RunSettings]:
    checks = [] if method == "plain" else [own_length, own_steps, _gain_is_known]
    return sections.compose(
        kind,
        method,
        *checks,
        *([_units_are_dense] if method == "two-step" else []),
        data=BinaryOrReal,
        model=VariationalModel,
        objective=Bounds,
        **_PARTS[method],
        training=with_defaults(sections.Training, batch_size=128),
        evaluation=with_defaults(VariationalEvaluation, rows=1000),
    )


def check(config: Any, dataset: Any) -> None:
    """Refuse data that the units cannot have, filters for what is not an image, and too many weights."""
    from natgrad.training.checks import check_values, check_weights  # which reads data

    chosen = config.model
    check_values(dataset, gaussian=chosen.visible == "gaussian")
    if chosen.filters and dataset.image_shape is None:
        raise InputError(
            f"filters need images, the rows of {dataset.name} are not images; give --image-shape"
        )
    sizes = (dataset.visible, *chosen.layers, 2 * chosen.latent)
    check_weights(2 * sum((low + 1) * up for low, up in pairwise(sizes)))


SPEC = Spec(
    kinds={"vae": "a variational autoencoder: a latent vector, a network from it to data, and one back"},
    settings=Settings(_settings, [("vae", method) for method in _PARTS]),
    methods={
        "plain": "the gradient itself, by default with Adam",
        "two-step": "a natural step of each network in its own model: the Fisher of q(z | x) and that of "
        "p(x | z), by default a block for each layer as a product of two factors",
        "natural": "a natural step of both networks by one system, solved approximately",
    },
    short={
        "layers": "model.layers",
        "latent": "model.latent",
        "visible": "model.visible",
        "activation": "model.activation",
        "filters": "model.filters",
        "samples": "objective.samples",
        **METRIC_NAMES,
    },
    columns=(
        Column("valid_elbo", "valid ELBO", NATS, higher=True, chart="Evidence lower bound"),
        Column("test_elbo", "test ELBO", NATS, higher=True, chart="Evidence lower bound", final=True),
        Column("valid_ll", "valid LL", NATS, higher=True, note="with as many samples as the test"),
        TEST_LL,
        Column("mc_se", "sampling error of the test LL", NATS),
        Column(
            "reconstruction", "reconstruction", NATS, higher=True, note="of test rows; the ELBO is it less KL"
        ),
        Column("latent_kl", "KL of q and the prior", NATS, note="of test rows"),
        Column("effective_samples", "Effective samples", higher=True, note="of the importance weights"),
    ),
    criterion="valid_ll",
    headline="test_ll",
    shape=Shape,
    kind="natgrad.models.vae.kind:KIND",
    is_scheduled=rate_ends,
    check=check,
    commands={
        "evaluate": "natgrad.models.vae.commands:evaluate",
        "sample": "natgrad.training.sample_command:sample",
        "fisher": "natgrad.models.vae.commands:show_fisher",
    },
    estimators={"VAE": "natgrad.models.vae.estimator:VAE"},
)
