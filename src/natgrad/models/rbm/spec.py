"""What is known of restricted Boltzmann machines without JAX: settings by method, columns, commands."""

from dataclasses import replace
from typing import Any

from natgrad.config import own_length, own_steps, rate_ends, sections
from natgrad.config.sections import with_defaults
from natgrad.config.values import BinaryOrReal
from natgrad.errors import InputError
from natgrad.models.rbm.sections import (
    Centerable,
    Contrastive,
    EigenRoots,
    JointFisher,
    Judged,
    LearnedRoots,
    Penalized,
    RestrictedMachine,
)
from natgrad.models.registry import (
    METRIC_NAMES,
    NATS,
    TEST_LL,
    TRAIN_LOSS,
    Column,
    MeasuredShape,
    Settings,
    Spec,
)

Shape = MeasuredShape
_Centered = with_defaults(Centerable, centering=True)
_Training = with_defaults(sections.Training, batch_size=100)
_Fisher = with_defaults(JointFisher, damping=0.1)
_PARTS: dict[str, dict[str, Any]] = {
    "natural": {"objective": _Centered, "metric": _Fisher},
    "plain": {"objective": Centerable},
    "penalty": {"objective": Penalized},
    "whitening": {"objective": Contrastive, "whitening": LearnedRoots},
    "eigen-whitening": {"objective": Contrastive, "whitening": EigenRoots},
}
_LIKELIHOOD = "Log-likelihood"
_RATES = {"plain": 0.05, "penalty": 0.05}  # others: 0.02


def _has_samples(config: Any) -> None:
    """The metric needs samples or an enumeration, as the gradient does."""
    if config.objective.negative == "exact" and config.metric.source == "samples":
        raise InputError(
            "metric.source samples needs samples of the machine, got --negative exact, which draws none; "
            "leave metric.source out"
        )
    if config.metric.solver == "dual" and "exact" in (config.objective.negative, config.metric.source):
        raise InputError(
            "--solver dual works in the space of samples, got a Fisher that is enumerated (--negative exact "
            "or metric.source exact); use --solver auto, or metric.source samples with --negative pcd"
        )


def _settings(kind: str, method: str) -> type[sections.RunSettings]:
    natural = method == "natural"
    return sections.compose(
        kind,
        method,
        *([own_length, own_steps, _has_samples] if natural else []),
        data=BinaryOrReal,
        model=RestrictedMachine,
        **_PARTS[method],
        optimizer=with_defaults(sections.Optimizer, learning_rate=_RATES.get(method, 0.02)),
        training=_Training,
        evaluation=Judged,
    )


def check(config: Any, dataset: Any) -> None:
    """Refuse data that the units cannot have, and what is too large to enumerate or to store."""
    from natgrad.models.rbm.limits import check_enumerable, check_storable
    from natgrad.training.checks import (
        check_values,
        check_weights,
    )  # which reads data, and settings should not

    visible, hidden, gaussian = dataset.visible, config.model.hidden, config.model.visible == "gaussian"
    check_values(dataset, gaussian=gaussian)
    check_weights(visible * hidden + visible + hidden, flag="--hidden")
    if config.objective.negative == "exact":
        check_enumerable(visible, hidden, gaussian=gaussian)
    if hasattr(config, "metric") and "exact" in (config.objective.negative, config.metric.source):
        marginal = config.metric.fisher == "marginal"
        check_storable(visible, hidden, gaussian=gaussian, marginal=marginal)


SPEC = Spec(
    kinds={"rbm": "a restricted Boltzmann machine: a visible and a hidden layer, and weights between them"},
    settings=Settings(_settings, [("rbm", method) for method in _PARTS]),
    methods={
        "natural": "natural gradient: the Fisher of the joint model, from the step's own chains or by "
        "enumeration; by default solved in sample space, where statistics are centered",
        "plain": "the gradient itself, or with objective.centering the one of centered statistics",
        "penalty": "plain, with a penalty on the covariances of units, exact or approximate",
        "whitening": "plain in a chart where both layers are whitened by matrices that follow a rule of "
        "learning; the machine itself stays plain",
        "eigen-whitening": "the same with matrices by eigendecomposition, every few steps",
    },
    short={
        "hidden": "model.hidden",
        "visible": "model.visible",
        "coding": "model.coding",
        "negative": "objective.negative",
        "gibbs": "objective.gibbs",
        "chains": "objective.chains",
        "centering": "objective.centering",
        **METRIC_NAMES,
    },
    columns=(
        replace(TRAIN_LOSS, note="with chains the train loss is minus a pseudo-likelihood"),
        Column("valid_ll", "valid LL", NATS, higher=True, chart=_LIKELIHOOD),
        replace(TEST_LL, chart=_LIKELIHOOD),
        Column("valid_pseudo", "valid pseudo-LL", NATS, higher=True, chart="Pseudo-likelihood"),
        Column(
            "test_pseudo",
            "test pseudo-LL",
            NATS,
            higher=True,
            chart="Pseudo-likelihood",
            note="estimated; for Gaussian units log p(v | mean of h)",
            final=True,
        ),
        Column("log_z", "log Z", "nats", error="log_z_se"),
        Column("swap_rate", "swap rate", higher=None, chart="Swap rates", note="of all neighbors"),
        Column("swap_rate_least", "least swap rate", chart="Swap rates", note="of the worst pair"),
        Column("penalty", "penalty", chart="Penalty", log=True, note="the squared norm of the covariances"),
        Column("gamma", "weight of the penalty", log=True),
        Column(
            "white_distance",
            "covariances from the identity",
            higher=False,
            chart="Distance from the identity",
            note="relative; of v and h as the chart has them, under the machine",
        ),
        Column(
            "fisher_distance",
            "Fisher from the identity",
            higher=False,
            chart="Distance from the identity",
            note="relative; of the joint Fisher in the chart, enumerated or from the chains",
        ),
    ),
    headline=("test_ll", "test_pseudo"),
    shape=Shape,
    kind="natgrad.models.rbm.kind:KIND",
    is_scheduled=rate_ends,
    check=check,
    commands={
        "evaluate": "natgrad.models.rbm.commands:evaluate",
        "sample": "natgrad.models.rbm.commands:sample",
        "fisher": "natgrad.models.rbm.commands:show_fisher",
    },
    estimators={"BernoulliRBM": "natgrad.models.rbm.estimator:BernoulliRBM"},
)
