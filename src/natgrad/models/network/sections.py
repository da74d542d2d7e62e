"""The settings of networks, section by section; no JAX."""

from typing import Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from natgrad.config import sections
from natgrad.config.averages import AveragedGradient
from natgrad.config.sections import Section, setting
from natgrad.errors import InputError


class Data(sections.Data):
    """Which data, what their values are, how rows are split, and how many have labels."""

    binarize: Literal["round", "resample", "gray", "real"] = setting(
        "gray",
        "Values are rounded, drawn as 0 or 1 at every use, kept in [0, 1], or kept as any real numbers.",
    )
    labeled: PositiveInt | None = setting(
        None, "How many training rows have labels; the others may be used for the metric.", unset="all"
    )


class NetworkModel(sections.ModelSection):
    """The sizes of a network and its units."""

    layers: tuple[PositiveInt, ...] = setting(
        (200,),
        "Hidden sizes from the data upward; the second half of a network that mirrors them is not listed.",
        min_length=1,
    )
    activation: Literal["tanh", "sigmoid", "relu"] = setting(
        "tanh", "The activation function of hidden units."
    )
    beta: PositiveFloat | None = setting(None, "The standard deviation of a linear output.", unset="1.0")

    @model_validator(mode="after")
    def _beta_is_of_linear_outputs(self) -> "NetworkModel":
        if self.beta is not None and self.output != "linear":
            raise InputError(
                f"model.beta is the deviation of a linear output, got the output {self.output}; "
                "leave it out, or use --output linear"
            )
        return self


class PerceptronModel(NetworkModel):
    """A network whose targets are labels."""

    output: Literal["softmax", "sigmoid", "linear"] = setting(
        "softmax",
        "The distribution of targets: classes (softmax), values in [0, 1] (sigmoid), or numbers (linear).",
    )


class ConvolutionalModel(PerceptronModel):
    """A network of images: banks of filters before its layers."""

    filters: tuple[PositiveInt, ...] = setting((8, 16), "Filters of each bank.", min_length=1)
    filter_width: PositiveInt = setting(5, "Pixels of a filter's side.")


class AutoencoderModel(NetworkModel):
    """A network whose targets are its inputs."""

    output: Literal["sigmoid", "linear"] = setting(
        "sigmoid", "The distribution of targets: values in [0, 1] (sigmoid), or numbers (linear)."
    )


class MetricBatch(Section):
    """Which rows a metric sees."""

    data: Literal["same", "different"] = setting(
        "same", "The rows of the metric: the gradient's batch, or those after it."
    )
    rows: int = setting(0, "Rows of the metric (0: as many as the batch).", ge=0)


class Unlabeled(Section):
    """Which rows a metric sees that needs no labels."""

    data: Literal["same", "different", "unlabeled", "both"] = setting(
        "same",
        "Rows of the metric: the gradient's batch, the rows after it, rows without labels, or the batch "
        "and rows without labels.",
    )
    rows: int = setting(0, "Rows of the metric (0: as many as the batch).", ge=0)


class DrawnTargets(Unlabeled):
    """Targets of a metric that may be drawn."""

    drawn: PositiveInt | None = setting(
        None,
        "Targets that are drawn for each row to estimate the matrix.",
        unset="no draws, the exact matrix",
    )


class Warm(Section):
    """Where a solve starts."""

    warm_start: float = setting(
        0.0, "The share of the last direction where a solve starts (0: at zero).", ge=0, lt=1
    )


class Whole(sections.Bounded, Warm, sections.Refreshed, sections.Iterative, sections.Adaptive):
    """A metric of the whole network."""

    solver: Literal["auto", "cg", "minres", "direct", "dual"] = setting(
        "auto", "How the system is solved: direct, dual exactly; cg, minres by iterations."
    )
    rows_at_once: PositiveInt | None = setting(
        None, "Rows of a product that are in memory at a time.", unset="all"
    )


class NaturalMetric(Whole, DrawnTargets):
    """The Fisher metric of the whole network."""


class Tonga(Whole, MetricBatch):
    """The centered covariance of gradients."""


class HessianFree(Warm, sections.Iterative, sections.Damped, MetricBatch):
    """The Gauss-Newton matrix by Martens' rules."""


class Krylov(sections.Iterative, MetricBatch):
    """The subspace in which the loss is minimized."""


class Units(sections.Refreshed, sections.Iterative, sections.Damped, DrawnTargets):
    """A block of the Fisher metric for every unit."""

    solver: Literal["auto", "cg", "diagonal"] = setting(
        "auto", "How blocks are solved: by conjugate gradients (auto, cg), or by their diagonal alone."
    )


class Factors(AveragedGradient, sections.Bounded, sections.Refreshed, sections.Adaptive, Unlabeled):
    """A block of the Fisher metric for every layer, as a product of two factors."""

    average: float = setting(
        0.8, "The decay of averages of the factors, from one renewal to the next (0: none).", ge=0, lt=1
    )
