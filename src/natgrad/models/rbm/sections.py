"""The settings of restricted Boltzmann machines, section by section; no JAX."""

from typing import Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from natgrad.config import sections
from natgrad.config.sections import Section, setting
from natgrad.errors import InputError


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
        "Subtract averages from the statistics: the same models in other coordinates for the steps.",
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


class LearnedRoots(Roots):
    """Whitening that follows a rule of learning."""

    rate: PositiveFloat = setting(0.05, "How fast the whitening matrices follow the statistics.")
    refresh: PositiveInt = setting(1, "Steps between two updates of the whitening matrices.")


class EigenRoots(Roots):
    """Whitening by eigenvectors."""

    refresh: PositiveInt = setting(20, "For how many steps a decomposition is kept.")


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
