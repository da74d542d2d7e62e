"""A kind of model of somebody else: independent Bernoulli variables in two halves, without JAX."""

from pydantic import PositiveFloat

from natgrad.config.sections import ModelSection, Section, compose, setting
from natgrad.models.registry import Column, Spec


class Chains(Section):
    """What is carried from step to step."""

    chains: int = setting(50, "Samples of the model that are carried.", ge=1)


class Rates(Section):
    """A rate for each half."""

    left: PositiveFloat = setting(0.2, "The learning rate of the left half.")
    right: PositiveFloat = setting(0.1, "The learning rate of the right half.")


SPEC = Spec(
    kinds={"toy": "independent binary variables"},
    settings={
        ("toy", method): compose("toy", method, model=ModelSection, objective=Chains, rates=Rates)
        for method in ("natural", "plain")
    },
    methods={"natural": "by the exact Fisher, which is diagonal", "plain": "the gradient itself"},
    short={"chains": "objective.chains"},
    columns=(Column("test_loss", "test loss", "nats", higher=False, final=True),),
    headline="test_loss",
    kind="toy_kind:KIND",
    commands={name: f"toy_kind:{name}" for name in ("evaluate", "sample", "fisher")},
)
