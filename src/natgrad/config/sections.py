"""Sections of settings that kinds of model share, and how the config class of a (kind, method) is composed.

A section declares the settings that are read, defaults included, each with a line about it for `--help` and
`docs/settings.md`. A kind takes these sections, its own, and puts them together with `compose`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, create_model, model_validator

from natgrad.errors import InputError

FORMAT: Literal[4] = 4  # for those before see `natgrad.config.former`
RATES = {"momentum": 0.01, "nesterov": 0.01, "adam": 1e-3, "nadam": 1e-3, "rmsprop": 1e-3}
"""Learning rates of optimizers where none is given; with sgd it is the method's."""
MOMENTUM = 0.9  # of optimizers that have averages
LONGEST_SERVICE = 1000  # steps of a metric that is renewed when the model has moved
FINAL_FRACTION = 0.01  # of schedules that have an end
ENDLESS = ("constant", "inverse-time")
"""Schedules without an end: the number of steps and what is left after them mean nothing to these."""


def setting(default: Any, about: str, *, unset: str = "", **limits: Any) -> Any:
    """A setting: its default, what it is, and where it may be left out (None) what that means."""
    return Field(default, description=about, json_schema_extra={"unset": unset} if unset else None, **limits)


class Section(BaseModel):
    """Settings that belong together: those that are declared and no others."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        defer_build=True,  # most classes only describe: validators of all of them take a second to make
    )

    if TYPE_CHECKING:  # sections and settings of a kind are known to its own code only

        def __getattr__(self, name: str) -> Any: ...


class Data(Section):
    """Which data, and how they are split."""

    name: str = setting("digits", "A data set (see `natgrad data list`), or a .npy, .npz or .csv file.")
    image_shape: tuple[PositiveInt, PositiveInt] | None = setting(
        None, "Height and width of the images of a file.", unset="that of the data set"
    )
    split_seed: int = setting(
        0, "Decides which rows train, validate and test, where the data set does not.", ge=0, lt=2**32
    )
    classes: tuple[int, ...] | None = setting(
        None, "Labels whose rows are used, of every split.", unset="all", min_length=1
    )
    train_rows: PositiveInt | None = setting(
        None, "Training rows that are used, chosen at random by the split's seed.", unset="all"
    )
    test_rows: PositiveInt | None = setting(None, "Test rows that are used, also by that seed.", unset="all")


class ModelSection(Section):
    """What is trained."""

    kind: str = setting(..., "The kind of model.")


class Training(Section):
    """How long, in what portions, and where."""

    epochs: int = setting(100, "Passes over the training rows.", ge=0)
    batch_size: PositiveInt = setting(32, "Rows in a batch.")
    chunk_steps: PositiveInt = setting(500, "Steps between two checks of clock and signals, at most.")
    save_seconds: float = setting(30.0, "Seconds after which a state is saved between evaluations.", ge=0)
    device: Literal["auto", "cpu", "gpu", "tpu"] = setting("auto", "The device to compute on.")
    random: Literal["mixer", "threefry"] = setting("mixer", "The generator: natgrad's own, or JAX's.")
    schedule_steps: PositiveInt | None = setting(
        None, "Steps over which schedules run.", unset="the whole training"
    )


class Evaluation(Section):
    """How often, on how many rows, and which model is evaluated."""

    every: PositiveInt = setting(10, "Epochs between evaluations.")
    rows: int = setting(2000, "Rows of each held-out split that are evaluated on (0: all).", ge=0)
    average: float = setting(
        0.0,
        "The model in use is an average of late ones, over about 1 / (1 - average) steps (0: the last).",
        ge=0,
        lt=1,
    )
    patience: int = setting(
        0, "Evaluations without a better validation figure after which training stops (0: never).", ge=0
    )
    log_checkpoints: bool = setting(False, "Keep copies of the model at steps 1, 2, 4, 8, ... of training.")


class Rate(Section):
    """How far a step goes along its direction."""

    learning_rate: PositiveFloat = setting(0.1, "The learning rate: how far a step goes along its direction.")


class Scheduled(Rate):
    """A learning rate that may rise at first, and fall."""

    warmup: int = setting(
        0,
        "Steps in which the learning rate rises evenly to its value, beside its schedule (0: none).",
        ge=0,
    )
    schedule: Literal["constant", "cosine", "exponential", "inverse", "linear", "inverse-time"] = setting(
        "constant", "How the learning rate falls."
    )
    final_fraction: float | None = setting(
        None,
        f"The share of the learning rate that is left at the end of a schedule; {' and '.join(ENDLESS)} have "
        "no end.",
        unset=str(FINAL_FRACTION),
        gt=0,
        le=1,
    )
    hold_steps: PositiveInt | None = setting(
        None, "Steps before an inverse-time schedule starts to fall.", unset="200"
    )
    decay_time: PositiveFloat | None = setting(
        None, "Steps in which an inverse-time schedule halves the rate, once it falls.", unset="20.0"
    )

    @model_validator(mode="after")
    def _only_inverse_time(self) -> "Scheduled":
        for name in ("hold_steps", "decay_time"):
            if getattr(self, name) is not None and self.schedule != "inverse-time":
                raise InputError(
                    f"optimizer.{name} is for the schedule inverse-time, got the schedule {self.schedule}; "
                    "leave it out, or choose that schedule"
                )
        return self

    @model_validator(mode="after")
    def _only_with_an_end(self) -> "Scheduled":
        if self.final_fraction is not None and self.schedule in ENDLESS:
            raise InputError(
                "optimizer.final_fraction is for schedules that have an end, got the schedule "
                f"{self.schedule}; leave it out, or give optimizer.schedule"
            )
        return self


class Named(Section):
    """Which optimizer."""

    name: Literal["sgd", "momentum", "nesterov", "adam", "nadam", "rmsprop"] = setting(
        "sgd",
        "What is done with a direction; some have their own default of the learning rate: "
        + ", ".join(f"{name} {rate}" for name, rate in RATES.items()),
    )
    momentum: float | None = setting(
        None, "The decay of the optimizer's averages; sgd has none.", unset=str(MOMENTUM), ge=0, lt=1
    )
    weight_decay: float = setting(0.0, "Weights, not biases, lose this share times the rate in a step.", ge=0)


class Optimizer(Scheduled, Named):  # settings of later bases come first
    """What is done with a direction."""

    @model_validator(mode="before")
    @classmethod
    def _usual_rate(cls, tree: Any) -> Any:
        if isinstance(tree, Mapping) and (name := str(tree.get("name"))) in RATES:
            return {"learning_rate": RATES[name], **tree}
        return tree

    @model_validator(mode="after")
    def _momentum_is_of_averages(self) -> "Optimizer":
        if self.momentum is not None and self.name == "sgd":
            raise InputError(
                "optimizer.momentum is the decay of an optimizer's averages, got the optimizer sgd, which "
                "has none; leave it out, or use --optimizer momentum"
            )
        return self


class Damped(Section):
    """Damping of a metric."""

    damping: PositiveFloat = setting(0.2, "Added to the diagonal of the metric.")


class Adaptive(Damped):
    """Damping that may follow how steps do."""

    adaptive: bool = setting(
        False, "Damping rises after steps that gain less than predicted, and falls after good ones."
    )
    relative: bool = setting(False, "Damping is a multiple of the mean of the metric's diagonal.")


class Iterative(Section):
    """A solve by iterations."""

    iterations: PositiveInt = setting(10, "Iterations of a solve, at most.", le=10_000)


class Refreshed(Section):
    """A metric that may serve several steps."""

    refresh: PositiveInt = setting(
        1, f"Steps for which a metric is kept, K; with renewal_kl at most ({LONGEST_SERVICE} by default)."
    )
    renewal_kl: float = setting(
        0.0,
        "A metric is renewed when the KL divergence of its steps adds up to this many nats (0: by refresh).",
        ge=0,
    )

    @model_validator(mode="before")
    @classmethod
    def _usual_service(cls, tree: Any) -> Any:
        bounded = isinstance(tree, Mapping) and tree.get("renewal_kl") not in (None, 0)
        return {"refresh": LONGEST_SERVICE, **tree} if bounded else tree


class Bounded(Section):
    """A bound on the length of a step."""

    kl_radius: float = setting(
        0.0,
        "The largest KL divergence between the distributions before and after a step, in nats (0: no bound).",
        ge=0,
    )


class RunSettings(Section):
    """Everything that decides what a run computes; a kind adds sections of its own."""

    format: Literal[4] = setting(FORMAT, "The version of this list of settings.")
    method: str = setting(..., "How the gradient is made and measured.")
    seed: int = setting(0, "Decides the initial weights, the order of rows and every sample.", ge=0, lt=2**32)
    data: Data = Field(default_factory=Data)
    model: ModelSection
    training: Training = Field(default_factory=Training)
    evaluation: Evaluation = Field(default_factory=Evaluation)


def with_defaults(section: type[Section], **defaults: Any) -> type[Any]:
    """A section with other defaults, and nothing else changed."""
    changed: dict[str, Any] = {}
    for name, value in defaults.items():
        field = section.model_fields[name]
        kind = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        about: Any = {"description": field.description, "json_schema_extra": field.json_schema_extra}
        changed[name] = (kind, Field(value, **about))
    return create_model(section.__name__, __base__=section, __doc__=section.__doc__, **changed)


def compose(
    kind: str,
    method: str,
    *checks: Callable[[Any], None],
    model: type[ModelSection],
    **sections: type[Section],
) -> type[RunSettings]:
    """The config class of a kind and a method, from sections and what must hold between them.

    A check gets the whole config and raises an `InputError`.
    """
    fixed: Any = {"kind": (Literal[kind], _like(ModelSection, "kind", kind))}
    named: Any = create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fixed)
    parts: dict[str, Any] = {"model": named, **sections}
    fields: Any = {name: (part, Field(default_factory=part)) for name, part in parts.items()}
    fields["method"] = (Literal[method], _like(RunSettings, "method", method))
    validators: Any = {f"check_{number}": _checked(check) for number, check in enumerate(checks)}
    return create_model(
        "Run", __base__=RunSettings, __doc__=RunSettings.__doc__, __validators__=validators, **fields
    )


def _like(section: type[Section], name: str, default: Any) -> Any:
    return Field(default, description=section.model_fields[name].description)


def _checked(check: Callable[[Any], None]) -> Any:
    def run(config: Any) -> Any:
        check(config)
        return config

    return model_validator(mode="after")(run)
