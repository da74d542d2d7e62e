"""What is known of restricted Boltzmann machines without JAX: settings by method, columns, commands."""

from typing import Any, Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from natgrad.config import sections
from natgrad.config.sections import Section, setting, with_defaults
from natgrad.errors import InputError
from natgrad.models import registry
from natgrad.models.registry import METRIC_NAMES, NATS, TEST_LL, Column, Settings, Spec


class Data(sections.Data):
    """Which data, what their values are, and how rows are split."""

    binarize: Literal["round", "resample", "real"] | None = setting(
        None,
        "Gray values are rounded once, drawn again at every use, or kept as real numbers.",
        unset="that of the data set",
    )


class RestrictedMachine(sections.ModelSection):
    """The size of a machine, its units and its initial values."""

    hidden: PositiveInt = setting(100, "Hidden units.")
    visible: Literal["bernoulli", "gaussian"] = setting(
        "bernoulli", "Visible units: binary, or real with variance one."
    )
    coding: Literal["binary", "signed"] = setting("binary", "Binary units are in {0,1} or in {-1,+1}.")
    deviation: PositiveFloat = setting(0.01, "The standard deviation of the initial weights.")
    bias: Literal["data", "zero"] = setting(
        "data", "Initial visible biases: those of independent units with the data's means, or zero."
    )


_NEEDED = {
    "gibbs": ("cd", "pcd", "tempering"),
    "chains": ("pcd", "tempering"),
    "temperatures": ("tempering",),
}


class Contrastive(Section):
    """Where the expectations under the model come from."""

    negative: Literal["pcd", "cd", "tempering", "exact"] = setting(
        "pcd",
        "The negative phase: persistent chains, chains that start at the data, chains at several "
        "temperatures, or a sum over all states.",
    )
    gibbs: PositiveInt | None = setting(None, "Turns of Gibbs sampling in every step.", unset="1")
    chains: PositiveInt | None = setting(None, "Chains that are carried from step to step.", unset="100")
    temperatures: int | None = setting(None, "Temperatures of the tempered chains.", unset="10", ge=2)
    centering: bool = setting(
        False,
        "Take averages from the statistics: another chart of the same machines, in which steps are made.",
    )

    @model_validator(mode="after")
    def _only_what_is_read(self) -> "Contrastive":
        for name, phases in _NEEDED.items():
            if getattr(self, name) is not None and self.negative not in phases:
                raise InputError(
                    f"objective.{name} is for --negative {' or '.join(phases)}, got --negative "
                    f"{self.negative}; leave it out, or choose another"
                )
        return self


class JointFisher(sections.Bounded, sections.Refreshed, sections.Iterative, sections.Adaptive):
    """The Fisher metric of a machine."""

    source: Literal["auto", "samples", "exact"] = setting(
        "auto", "The Fisher is estimated from the step's chains, or enumerated; auto does as the gradient."
    )
    fisher: Literal["joint", "marginal"] = setting(
        "joint", "The Fisher of visible and hidden units together, or of the visible ones alone."
    )
    solver: Literal["auto", "dual", "direct", "cg", "minres", "blocks", "diagonal"] = setting(
        "auto",
        "How the system is solved: dual in sample space, direct, cg or minres whole; blocks keeps a block "
        "for each hidden unit, diagonal the diagonal.",
    )


class Judged(sections.Evaluation):
    """How often, on how many rows, how thoroughly, and which model is judged."""

    temperatures: int = setting(
        0,
        "Temperatures of annealed importance sampling at every evaluation of a machine too large to "
        "enumerate (0: only pseudo-likelihoods).",
        ge=0,
    )


class Shape(registry.Shape):
    """What the data decide: the size, and how many training rows have which means."""

    means: tuple[float, ...]
    rows: int

    @classmethod
    def of(cls, config: Any, dataset: Any) -> "Shape":
        """The size and the means of a data set."""
        del config
        found = dataset.train.mean(axis=0, dtype=float) / dataset.levels
        means, rows = tuple(found.tolist()), len(dataset.train)
        return cls(visible=dataset.visible, image_shape=dataset.image_shape, means=means, rows=rows)


_Centered = with_defaults(Contrastive, centering=True)
_Training = with_defaults(sections.Training, batch_size=100)


def _has_samples(config: Any) -> None:
    """The metric needs samples or an enumeration, as the gradient does."""
    if config.objective.negative == "exact" and config.metric.source == "samples":
        raise InputError(
            "metric.source samples needs samples of the machine, got --negative exact, which draws none; "
            "leave metric.source out"
        )


def _settings(kind: str, method: str) -> type[sections.RunSettings]:
    natural = method == "natural"
    return sections.compose(
        kind,
        method,
        *([sections.own_length, _has_samples] if natural else []),
        data=Data,
        model=RestrictedMachine,
        objective=_Centered if natural else Contrastive,
        **({"metric": with_defaults(JointFisher, damping=0.1)} if natural else {}),
        optimizer=with_defaults(sections.Optimizer, learning_rate=0.02 if natural else 0.05),
        training=_Training,
        evaluation=Judged,
    )


def check(config: Any, dataset: Any) -> None:
    """Refuse data that the units cannot have, and what is too large to enumerate or to store."""
    from natgrad.models.rbm.limits import check_enumerable, check_storable
    from natgrad.training.checks import check_weights  # which reads data, and settings should not

    visible, hidden, gaussian = dataset.visible, config.model.hidden, config.model.visible == "gaussian"
    real = dataset.train.dtype.kind == "f"
    if real and not gaussian:
        raise InputError(
            f"Bernoulli units are 0 or 1, the values of {dataset.name} are real numbers; use --visible "
            "gaussian, or leave data.binarize out"
        )
    if gaussian and not real:
        raise InputError(
            f"Gaussian units are real, the values of {dataset.name} are made binary; add --data.binarize real"
        )
    check_weights(visible * hidden + visible + hidden)
    if config.objective.negative == "exact":
        check_enumerable(visible, hidden, gaussian=gaussian)
    if hasattr(config, "metric") and "exact" in (config.objective.negative, config.metric.source):
        marginal = config.metric.fisher == "marginal"
        check_storable(visible, hidden, gaussian=gaussian, marginal=marginal)


SPEC = Spec(
    kinds={"rbm": "a restricted Boltzmann machine: a visible and a hidden layer, and weights between them"},
    settings=Settings(_settings, [("rbm", method) for method in ("natural", "plain")]),
    methods={
        "natural": "natural gradient: the Fisher of the joint model, from the step's own chains or by "
        "enumeration; by default solved in sample space, where statistics are centered",
        "plain": "the gradient itself, or with objective.centering the one of centered statistics",
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
        Column("valid_ll", "valid LL", NATS, higher=True, note="enumerated, or annealed if asked for"),
        TEST_LL,
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
    ),
    headline=("test_ll", "test_pseudo"),
    shape=Shape,
    kind="natgrad.models.rbm.kind:KIND",
    is_scheduled=lambda config: config.optimizer.schedule != "constant",
    check=check,
    commands={
        "evaluate": "natgrad.models.rbm.commands:evaluate",
        "sample": "natgrad.models.rbm.commands:sample",
        "fisher": "natgrad.models.rbm.commands:show_fisher",
    },
    estimators={"BernoulliRBM": "natgrad.models.rbm.estimator:BernoulliRBM"},
)
