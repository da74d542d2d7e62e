"""The settings of variational autoencoders, section by section; no JAX."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from natgrad.config import sections
from natgrad.config.averages import AveragedGradient
from natgrad.config.samples import MOST_SAMPLES, Sampled
from natgrad.config.sections import Section, setting
from natgrad.errors import InputError


class VariationalModel(sections.ModelSection):
    """The sizes of both networks, their units, and the distribution of the data."""

    layers: tuple[PositiveInt, ...] = setting(
        (200, 200), "Hidden sizes of recognition from the data upward; generation mirrors them.", min_length=1
    )
    latent: PositiveInt = setting(50, "The size of a latent vector.")
    visible: Literal["bernoulli", "gaussian"] = setting(
        "bernoulli", "The data are binary, or real with one variance."
    )
    deviation: PositiveFloat | None = setting(
        None, "The standard deviation of Gaussian data around their means.", unset="learned"
    )
    activation: Literal["tanh", "relu", "softplus"] = setting(
        "tanh", "The activation function of hidden units."
    )
    filters: tuple[PositiveInt, ...] = setting(
        (), "Filters of each bank that recognition puts before its layers; generation has their transposes."
    )
    filter_width: PositiveInt | None = setting(None, "Pixels of a filter's side.", unset="5")

    @model_validator(mode="after")
    def _only_what_is_read(self) -> "VariationalModel":
        if self.deviation is not None and self.visible != "gaussian":
            raise InputError(
                "model.deviation is that of Gaussian data, got --visible bernoulli; leave it out, or use "
                "--visible gaussian"
            )
        if self.filter_width is not None and not self.filters:
            raise InputError(
                "model.filter_width is the side of filters, got no --filters; leave it out, or give some"
            )
        return self


class Bounds(Sampled):
    """What each network learns from."""

    samples: PositiveInt = setting(1, "Latent vectors that are drawn for every row, S.", le=MOST_SAMPLES)
    generation: Literal["elbo", "importance"] = setting(
        "elbo",
        "The bound of generation: the evidence lower bound, or the importance-weighted one, whose gradient "
        "is the wake gradient.",
    )
    recognition: Literal["elbo", "importance", "sleep", "wake"] = setting(
        "elbo",
        "What recognition learns from: a bound, differentiated through the draws; fantasies; or draws "
        "weighted by importance.",
    )

    @model_validator(mode="after")
    def _weights_need_samples(self) -> "Bounds":
        for name in ("generation", "recognition"):
            chosen = getattr(self, name)
            if chosen in ("importance", "wake") and max(samples for _, samples in self.stages) == 1:
                raise InputError(
                    f"objective.{name} {chosen} weighs the samples of a row against each other, got one "
                    "sample; give --samples of at least 2, or use elbo"
                )
        return self


class VariationalMetric(
    AveragedGradient, sections.Bounded, sections.Refreshed, sections.Iterative, sections.Adaptive
):
    """A Fisher metric of the networks."""

    rows: int = setting(64, "At most this many rows of the batch make the metric (0: all).", ge=0)


class MetricOfBoth(VariationalMetric):
    """One Fisher metric of both networks."""

    solver: Literal["auto", "cg", "direct"] = setting(
        "auto", "How the system is solved: by iterations (auto, cg), or directly, for small networks."
    )


class MetricOfEach(VariationalMetric):
    """A Fisher metric of each network."""

    solver: Literal["kronecker", "units", "diagonal", "cg", "dual"] = setting(
        "kronecker",
        "How a network's system is solved: a block for each layer as a product of two factors, averaged over "
        "steps (kronecker); a block for each unit, or its diagonal; whole by iterations (cg), or in sample "
        "space (dual).",
    )
    refresh: PositiveInt = setting(
        20,
        "Steps for which a metric is kept, K; by default 20 with kronecker and 1 with other solvers; with "
        f"renewal_kl at most ({sections.LONGEST_SERVICE} by default).",
    )
    latent: Literal["recognition", "prior"] = setting(
        "recognition",
        "Latent vectors of generation's Fisher: recognition's for the batch, or those of the prior, which "
        "give the Fisher of the joint model.",
    )

    @model_validator(mode="before")
    @classmethod
    def _only_factors_are_kept(cls, tree: Any) -> Any:
        fresh = isinstance(tree, Mapping) and tree.get("solver", "kronecker") != "kronecker"
        return {"refresh": 1, **tree} if fresh and not tree.get("renewal_kl") else tree


class NetworkPart(Section):
    """One of the two networks."""

    rate: PositiveFloat | None = setting(
        None, "The learning rate of this network alone.", unset="optimizer.learning_rate"
    )
    damping: PositiveFloat | None = setting(
        None, "The damping of this network alone.", unset="metric.damping"
    )
    refresh: PositiveInt | None = setting(
        None, "For how many steps a metric of this network is kept.", unset="metric.refresh"
    )


class Alternation(Section):
    """Whether the networks move together or one after the other."""

    order: Literal["together", "generation-first", "recognition-first"] = setting(
        "together", "Both networks move at once, or one after the other, each by draws of its own."
    )
    repeats: PositiveInt | None = setting(
        None, "Steps of the network that moves first, for each step of the other.", unset="1"
    )

    @model_validator(mode="after")
    def _one_is_first(self) -> "Alternation":
        if self.repeats is not None and self.order == "together":
            raise InputError(
                "steps.repeats counts steps of the network that moves first, got steps.order together; leave "
                "it out, or choose an order"
            )
        return self


class VariationalEvaluation(sections.Evaluation):
    """How often, on how many rows, with how many samples, and which model is evaluated."""

    test_samples: PositiveInt = setting(100, "Importance samples per row for likelihoods of held-out rows.")
