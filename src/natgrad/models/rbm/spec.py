"""What is known of restricted Boltzmann machines without JAX: settings by method, columns, commands."""

from typing import Any, Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from natgrad.config import sections
from natgrad.config.sections import Section, setting, with_defaults
from natgrad.errors import InputError
from natgrad.models import registry
from natgrad.models.registry import Column, Settings, Spec


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

    @model_validator(mode="after")
    def _only_what_is_read(self) -> "Contrastive":
        for name, phases in _NEEDED.items():
            if getattr(self, name) is not None and self.negative not in phases:
                raise InputError(
                    f"objective.{name} is for --negative {' or '.join(phases)}, got --negative "
                    f"{self.negative}; leave it out, or choose another"
                )
        return self


class Centerable(Contrastive):
    """The same, with a choice of the chart."""

    centering: bool = setting(
        False,
        "Take averages from the statistics: another chart of the same machines, in which steps are made.",
    )


class Penalized(Centerable):
    """The same, and what correlation costs."""

    gamma: float = setting(
        0.01, "The share of the penalty in the loss; the practical version starts with it.", ge=1e-5, le=1
    )
    covariance: Literal["vh", "vv", "hh", "all"] = setting(
        "vh", "What is penalized: the covariance of visible with hidden units, of either layer, or all."
    )
    practical: bool = setting(
        False, "The version of the report: the change of a covariance over 15 steps, and a gamma that adapts."
    )
    threshold: PositiveFloat | None = setting(
        None, "Where the practical version calls an entry of its penalty large.", unset="0.01"
    )
    share: float | None = setting(
        None, "The share of large entries above which its gamma rises.", unset="0.1", gt=0, lt=1
    )

    @model_validator(mode="after")
    def _practical_is_of_both_layers(self) -> "Penalized":
        if self.practical and self.covariance != "vh":
            raise InputError(
                "objective.practical adds a change of the covariance of both layers to the weights, got "
                f"objective.covariance {self.covariance}; use vh, or leave practical out"
            )
        for name in ("threshold", "share"):
            if getattr(self, name) is not None and not self.practical:
                raise InputError(
                    f"objective.{name} is for the practical penalty, got the exact one; leave it out, or add "
                    "--objective.practical"
                )
        return self


class Roots(Section):
    """How the statistics are whitened."""

    source: Literal["model", "data"] = setting(
        "model", "What is to be white: the units of the model, as the negative phase has them, or the data."
    )
    epsilon: PositiveFloat = setting(0.05, "The variance of the noise that is imagined in every unit.")
    biases: bool = setting(True, "Biases are steps of the whitened chart too, not weights alone.")


class Followed(Roots):
    """Whitening that follows a rule of learning."""

    rate: PositiveFloat = setting(0.05, "How fast the whitening matrices follow the statistics.")
    refresh: PositiveInt = setting(1, "Steps between two updates of the whitening matrices.")


class Decomposed(Roots):
    """Whitening by eigenvectors."""

    refresh: PositiveInt = setting(20, "Steps that a decomposition serves.")


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


_Centered = with_defaults(Centerable, centering=True)
_Training = with_defaults(sections.Training, batch_size=100)
_Fisher = with_defaults(JointFisher, damping=0.1)
_PARTS: dict[str, dict[str, Any]] = {
    "natural": {"objective": _Centered, "metric": _Fisher},
    "plain": {"objective": Centerable},
    "penalty": {"objective": Penalized},
    "whitening": {"objective": Contrastive, "whitening": Followed},
    "eigen-whitening": {"objective": Contrastive, "whitening": Decomposed},
}
_RATES = {"plain": 0.05, "penalty": 0.05}  # others: 0.02


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
        **_PARTS[method],
        optimizer=with_defaults(sections.Optimizer, learning_rate=_RATES.get(method, 0.02)),
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


_NATS = "nats per row"
SPEC = Spec(
    kinds={"rbm": "a restricted Boltzmann machine: a visible and a hidden layer, and weights between them"},
    settings=Settings(_settings, [("rbm", method) for method in _PARTS]),
    methods={
        "natural": "natural gradient: the Fisher of the joint model, from the step's own chains or by "
        "enumeration; by default solved in sample space, where statistics are centered",
        "plain": "the gradient itself, or with objective.centering the one of centered statistics",
        "penalty": "plain, with a penalty of the covariances of units: the exact one, or the report's own",
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
        "gamma": "objective.gamma",
        "damping": "metric.damping",
        "refresh": "metric.refresh",
        "solver": "metric.solver",
    },
    columns=(
        Column("valid_ll", "valid LL", _NATS, higher=True, note="enumerated, or annealed if asked for"),
        Column(
            "test_ll",
            "test LL",
            _NATS,
            higher=True,
            chart="Test log-likelihood",
            error="test_ll_se",
            note="band: two standard errors over rows",
            final=True,
        ),
        Column("valid_pseudo", "valid pseudo-LL", _NATS, higher=True, chart="Pseudo-likelihood"),
        Column(
            "test_pseudo",
            "test pseudo-LL",
            _NATS,
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
            note="relative; of the joint Fisher in the chart, for small machines",
        ),
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
)
