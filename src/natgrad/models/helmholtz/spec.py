"""What is known of Helmholtz machines without JAX: settings by method, columns of the trace, commands.

A line of `OBJECTIVES` and a line of `METRICS` say which settings a method reads.
"""

from itertools import pairwise
from typing import Any, Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from natgrad.config import own_length, own_steps, rate_ends, sections
from natgrad.config.averages import AveragedGradient
from natgrad.config.samples import Sampled
from natgrad.config.sections import Section, setting, with_defaults
from natgrad.errors import InputError
from natgrad.models.registry import METRIC_NAMES, NATS, TEST_LL, Column, Settings, Spec

STORED = ("auto", "direct", "diagonal")  # solvers that keep a matrix, which can be averaged


class Data(sections.Data):
    """Which data, how gray values become binary, and how rows are split."""

    binarize: Literal["round", "resample"] | None = setting(
        None, "Gray values are rounded once, or drawn again at every use.", unset="that of the data set"
    )


class Machine(sections.ModelSection):
    """The sizes of a Helmholtz machine, its coding and its initial values."""

    layers: tuple[PositiveInt, ...] = setting(
        (200, 100, 10), "Hidden sizes from the data upward.", min_length=1
    )
    coding: Literal["signed", "binary"] = setting("signed", "Units are in {-1,+1} or in {0,1}.")
    weights: Literal["glorot-normal", "glorot-uniform", "lecun-normal"] = setting(
        "glorot-normal", "The distribution of the initial weights."
    )
    bias: float = setting(-1.0, "The initial biases of all layers.")
    prior_bias: float = setting(-1.0, "The initial biases of the top layer.")


class Sleeping(Section):
    """What recognition learns from dreams."""

    sleep_share: float = setting(1.0, "The share of dreams in what recognition learns from.", ge=0)
    sleeps: PositiveInt = setting(1, "Sleep steps for every wake step.")

    @model_validator(mode="after")
    def _recognition_learns(self) -> "Sleeping":
        if not (self.sleep_share or getattr(self, "wake_share", 0)):
            raise InputError(
                "recognition learns from dreams, and with reweighted methods from weighted samples, got "
                "shares of 0; give objective.sleep_share or objective.wake_share more"
            )
        return self


class Weighted(Section):
    """What recognition learns from weighted samples."""

    baseline: bool = setting(
        True, "Take 1/S from every weight in recognition's gradient, which lowers its variance."
    )


class WakeSleep(Sleeping, Sampled):
    """The objective of wake-sleep."""


class Reweighted(Sleeping, Weighted, Sampled):
    """The objective of reweighted wake-sleep."""

    wake_share: float = setting(0.5, "The share of weighted samples in what recognition learns from.", ge=0)


class Bidirectional(Weighted, Sampled):
    """The objective of bidirectional Helmholtz machines."""


class BlockSamples(Section):
    """Which samples a Fisher block is estimated from."""

    generation: Literal["dreams", "wake", "none"] = setting(
        "dreams", "The samples of generation's Fisher blocks; with none its direction is the gradient."
    )
    recognition: Literal["dreams", "wake", "mixed", "none"] = setting(
        "dreams",
        "The samples of recognition's Fisher blocks; mixed: half of the rows are wake samples, half dreams; "
        "with none its direction is the gradient.",
    )
    rows: int = setting(
        64,
        "At most this many rows make a block, equally many of each data row (0: all that a step draws).",
        ge=0,
    )


def _is_measured(config: Any) -> None:
    """A natural method has a metric of at least one network."""
    if config.metric.generation == config.metric.recognition == "none":
        plain = config.method.removeprefix("d").removeprefix("n")
        raise InputError(
            f"the method {config.method} measures one network at least, got metric.generation none and "
            f"metric.recognition none; leave one of them out, or use --method {plain}"
        )


class Diagonal(sections.Bounded, sections.Refreshed, sections.Adaptive, AveragedGradient, BlockSamples):
    """A Fisher metric of which only the diagonal is used."""

    final_damping: PositiveFloat | None = setting(
        None, "The damping at the end of training; on the way it changes exponentially.", unset="the damping"
    )
    average: float = setting(0.0, "The decay of an average of metrics (0: none).", ge=0, lt=1)


class BlockMetric(sections.Iterative, Diagonal):
    """A Fisher metric with a block for every unit."""

    solver: Literal["auto", "direct", "dual", "exact", "shared", "cg", "diagonal"] = setting(
        "auto",
        "How blocks are solved. Exactly: direct, dual, or exact (the cheaper of the two). Approximately: "
        "auto, shared, cg. By their diagonals alone: diagonal.",
    )

    @model_validator(mode="after")
    def _averages_are_stored(self) -> "BlockMetric":
        if self.average and self.solver not in STORED:
            raise InputError(
                f"metric.average needs a solver that keeps a matrix, {', '.join(STORED)}, got {self.solver}; "
                "choose one of them, or leave metric.average out"
            )
        return self


class PlainPart(Section):
    """One of the two networks."""

    rate: PositiveFloat | None = setting(
        None, "The learning rate of this network alone.", unset="optimizer.learning_rate"
    )


class NaturalPart(PlainPart):
    """One of the two networks, with a metric."""

    damping: PositiveFloat | None = setting(
        None, "The damping of this network alone.", unset="metric.damping"
    )
    refresh: PositiveInt | None = setting(
        None, "For how many steps a metric of this network is kept.", unset="metric.refresh"
    )


class Evaluation(sections.Evaluation):
    """How often, on how many rows, with how many samples, and which model is evaluated."""

    test_samples: PositiveInt = setting(100, "Importance samples per row for likelihoods of held-out rows.")


_Halves = with_defaults(Reweighted, sleep_share=0.5)
_FewIterations = with_defaults(BlockMetric, iterations=4)
_OBJECTIVES: dict[str, type[Section]] = {
    "nrws": _Halves,
    "ws": WakeSleep,
    "rws": _Halves,
    "bihm": Bidirectional,
    "nws": WakeSleep,
    "dnrws": _Halves,
    "nbihm": Bidirectional,
}
METRICS: dict[str, type[Section]] = {
    "nrws": _FewIterations,
    "nws": _FewIterations,
    "dnrws": Diagonal,
    "nbihm": _FewIterations,
}
"""The metrics of the natural methods; the others have none."""


def _settings(kind: str, method: str) -> type[sections.RunSettings]:
    natural = method in METRICS
    part = NaturalPart if natural else PlainPart
    rate = 0.05 if natural else 0.1
    return sections.compose(
        kind,
        method,
        *([own_length, own_steps, _is_measured] if natural else []),
        data=Data,
        model=Machine,
        objective=_OBJECTIVES[method],
        **({"metric": METRICS[method]} if natural else {}),
        generation=part,
        recognition=part,
        optimizer=with_defaults(sections.Optimizer, learning_rate=rate),
        evaluation=Evaluation,
    )


def check(config: Any, dataset: Any) -> None:
    """Refuse a machine that does not fit the memory."""
    from natgrad.training.checks import check_weights  # which reads data, and settings should not

    sizes = (dataset.visible, *config.model.layers)
    check_weights(sum((low + 1) * up + (up + 1) * low for low, up in pairwise(sizes)))


def is_scheduled(config: Any) -> bool:
    """Whether the learning rate or the damping follows a schedule that has an end."""
    damped = hasattr(config, "metric") and config.metric.final_damping is not None
    return rate_ends(config) or damped


SPEC = Spec(
    kinds={
        "helmholtz": "a Helmholtz machine: layers of binary units, generated downward and recognized upward"
    },
    settings=Settings(_settings, [("helmholtz", method) for method in _OBJECTIVES]),
    methods={
        "nrws": "natural reweighted wake-sleep: the Fisher is exactly block-diagonal, a block for each unit; "
        "blocks are estimated from samples and by default solved approximately",
        "ws": "wake-sleep: plain gradients",
        "rws": "reweighted wake-sleep: plain gradients, samples weighted by importance",
        "bihm": "bidirectional Helmholtz machine: plain gradients, weights are roots of importance",
        "nws": "natural wake-sleep: blocks as those of nrws",
        "dnrws": "natural reweighted wake-sleep with the diagonal of every block in place of the block",
        "nbihm": "natural bidirectional Helmholtz machine: blocks as those of nrws",
    },
    short={
        "layers": "model.layers",
        "coding": "model.coding",
        "samples": "objective.samples",
        **METRIC_NAMES,
    },
    columns=(
        Column("valid_ll", "valid LL", NATS, higher=True, note="with as many samples as the test"),
        TEST_LL,
        Column("mc_se", "sampling error of the test LL", NATS),
        Column(
            "kl",
            "KL",
            "nats",
            higher=False,
            chart="KL from the true distribution",
            log=True,
            note="exact, by enumeration",
            final=True,
        ),
        Column("effective_samples", "Effective samples", higher=True, note="of the importance weights"),
    ),
    criterion="valid_ll",
    headline="test_ll",
    kind="natgrad.models.helmholtz.kind:KIND",
    is_scheduled=is_scheduled,
    check=check,
    commands={
        "evaluate": "natgrad.models.helmholtz.commands:evaluate",
        "sample": "natgrad.training.sample_command:sample",
        "fisher": "natgrad.models.helmholtz.commands:show_fisher",
    },
    estimators={"HelmholtzMachine": "natgrad.models.helmholtz.estimator:HelmholtzMachine"},
)
