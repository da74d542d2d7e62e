"""A run's settings: validated, complete, and readable without importing JAX.

Everyday settings have short names (`layers`, `learning_rate`, ...: the table `SHORT`), used alike
on the command line and from Python; everything has a dotted name, which is its place in the TOML
file. `resolve` puts the layers together: defaults, the method's own defaults, a file, settings.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from natgrad import defaults
from natgrad.errors import InputError, Newer, unknown

MachineMethod = Literal["ws", "rws", "bihm", "nws", "nrws", "dnrws", "nbihm"]
NetworkMethod = Literal["natural", "hessian-free", "krylov", "tonga", "units", "plain"]
Method = MachineMethod | NetworkMethod
OptimizerName = Literal["sgd", "momentum", "nesterov", "adam", "nadam", "rmsprop"]
FORMAT: Literal[1] = 1
Schedule = Literal["constant", "cosine", "exponential", "inverse", "linear"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Data(_Section):
    """Which data, how grey values become binary (or stay grey, or real numbers), how rows are split.

    `labelled` is how many training rows a network sees the targets of (all, unless given); the other rows
    serve metrics.
    """

    name: str = "digits"
    binarize: Literal["round", "resample", "grey", "real"] | None = None
    labelled: PositiveInt | None = None
    image_shape: tuple[PositiveInt, PositiveInt] | None = None
    split_seed: int = Field(0, ge=0)


class Model(_Section):
    """What is trained: a Helmholtz machine (its coding and initial values) or a network.

    `layers` are hidden sizes from the data upward; an autoencoder's decoder mirrors them. `output` is the law
    of a network's targets, `beta` the deviation of a linear one; `filters` come before a convnet's layers.
    """

    kind: Literal["helmholtz", "mlp", "convnet", "autoencoder"] = "helmholtz"
    layers: tuple[PositiveInt, ...] = Field((200, 100, 10), min_length=1)
    coding: Literal["signed", "binary"] = "signed"
    weights: Literal["glorot-normal", "glorot-uniform", "lecun-normal"] = "glorot-normal"
    bias: float = -1.0
    prior_bias: float = -1.0
    activation: Literal["tanh", "sigmoid", "relu"] | None = None
    output: Literal["softmax", "sigmoid", "linear"] | None = None
    beta: PositiveFloat | None = None
    filters: tuple[PositiveInt, ...] | None = None
    filter_width: PositiveInt | None = None


class Objective(_Section):
    """Samples per data row, and what recognition learns from.

    `sleep_rate` scales the sleep gradient; `sleeps` is how many sleep steps go with a wake step;
    `growth` lists (epoch, samples): from that epoch on, that many samples.
    """

    samples: PositiveInt = 10
    baseline: bool = True
    wake_share: float = Field(0.5, ge=0)
    sleep_share: float = Field(0.5, ge=0)
    sleep_rate: PositiveFloat = 1.0
    sleeps: PositiveInt = 1
    growth: tuple[tuple[PositiveInt, PositiveInt], ...] = ()


class Metric(_Section):
    """The Fisher metric of the natural methods: its samples, its damping, its solver.

    `rows` bounds the rows that a block is estimated from (0: all that a step draws); only the solvers direct
    and dual are exact. Networks: `data` says which rows the metric sees, `drawn` how many targets are drawn
    for each (none: the exact matrix), `chunk` how many rows are in memory at a time; `momentum` is the share
    of the last direction where a solve starts.
    """

    generation: Literal["dreams", "wake", "reference", "none"] = "dreams"
    recognition: Literal["dreams", "wake", "none"] = "dreams"
    rows: int = Field(64, ge=0)
    damping: PositiveFloat = 0.2
    final_damping: PositiveFloat | None = None
    adaptive: bool = False
    relative: bool = False
    solver: Literal["auto", "direct", "dual", "shared", "cg", "diagonal", "minres"] = "auto"
    iterations: PositiveInt = 4
    refresh: PositiveInt = 1
    average: float = Field(0.0, ge=0, lt=1)
    momentum: float = Field(0.0, ge=0, lt=1)
    kl_radius: float = Field(0.0, ge=0)
    data: Literal["same", "different", "unlabeled", "both"] | None = None
    drawn: PositiveInt | None = None
    chunk: PositiveInt | None = None


class Optimizer(_Section):
    """What is done with the direction; schedules run over the whole training, or `decay_steps`."""

    name: OptimizerName = "sgd"
    learning_rate: PositiveFloat = 0.05
    momentum: float = Field(0.9, ge=0, lt=1)
    schedule: Schedule = "constant"
    decay_steps: PositiveInt | None = None
    final_fraction: float = Field(0.01, gt=0, le=1)


class Training(_Section):
    """How long, in what portions, and where; a state is saved at evaluations and every `save_seconds`."""

    epochs: int = Field(100, ge=0)
    batch_size: PositiveInt = 32
    chunk: PositiveInt = 500
    save_seconds: float = Field(30.0, ge=0)
    device: Literal["auto", "cpu", "gpu", "tpu"] = "auto"


class Evaluation(_Section):
    """How often (in epochs), on how many rows (0: all), with how many samples.

    With `average` the model that is judged and used is an average of late ones, with a memory of at
    most 1 / (1 - `average`) steps; 0 is the last model itself. Training stops early after `patience`
    evaluations without a better validation loss (0: never).
    """

    every: PositiveInt = 10
    rows: int = Field(2000, ge=0)
    test_samples: PositiveInt = 100
    average: float = Field(0.0, ge=0, lt=1)
    patience: int = Field(0, ge=0)


class Config(_Section):
    """Everything that decides what a run computes."""

    format: Literal[1] = FORMAT
    method: Method = "nrws"
    seed: int = Field(0, ge=0, lt=2**32)
    data: Data = Data()
    model: Model = Model()
    objective: Objective = Objective()
    metric: Metric = Metric()
    optimizer: Optimizer = Optimizer()
    training: Training = Training()
    evaluation: Evaluation = Evaluation()


SHORT = {
    "model": "model.kind",
    "method": "method",
    "data": "data.name",
    "labelled": "data.labelled",
    "metric_data": "metric.data",
    "activation": "model.activation",
    "output": "model.output",
    "filters": "model.filters",
    "image_shape": "data.image_shape",
    "layers": "model.layers",
    "coding": "model.coding",
    "samples": "objective.samples",
    "damping": "metric.damping",
    "refresh": "metric.refresh",
    "solver": "metric.solver",
    "optimizer": "optimizer.name",
    "learning_rate": "optimizer.learning_rate",
    "epochs": "training.epochs",
    "batch_size": "training.batch_size",
    "device": "training.device",
    "seed": "seed",
}

LONGEST = 1 << 16  # characters of a config file, which has a few thousand; its lines may have a sixteenth


EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a name",
    "tuple_type": "a list of whole numbers",
    "missing": "two whole numbers, height and width",
    "too_long": "two whole numbers, height and width",
    "too_short": "at least one whole number",
    "model_type": "a section of settings",
}
"""What a validation error's type means to a user."""


def resolve(settings: Mapping[str, Any], file: str | Path | None = None) -> Config:
    """The complete config: defaults, then a TOML file, then settings by short or dotted name."""
    tree = read(file) if file is not None else {}
    for name, value in settings.items():
        _put(tree, SHORT.get(name, name), value)
    defaults.complete(tree)
    found = validate(tree)
    defaults.check(found, Config())
    return found


def validate(tree: Mapping[str, Any]) -> Config:
    """A config from nested settings, or one sentence that says what is wrong."""
    try:
        return Config.model_validate(dict(tree))
    except ValidationError as error:
        raise _explain(error) from None


def read(file: str | Path) -> dict[str, Any]:
    """The nested settings of a TOML file."""
    try:
        with Path(file).open(encoding="utf-8") as stream:
            text = stream.read(LONGEST + 1)
        if len(text) > LONGEST or any(len(line) > LONGEST // 16 for line in text.splitlines()):
            raise ValueError("too long for a config")
        tree = tomllib.loads(text)
    except OSError as error:
        raise InputError(
            f"cannot read the config file {file}: {error.strerror}; give an existing TOML file"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{file} is not valid TOML ({error}); correct it, or start from --dry-run's output"
        ) from None
    if isinstance(tree.get("format"), int) and tree["format"] > FORMAT:
        raise Newer(file, tree["format"], FORMAT)
    return tree


def dump(config: Config) -> str:
    """The complete config as TOML."""
    import tomli_w

    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _put(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, last = dotted.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise InputError(f"{dotted}: {section!r} is a single value here, not a section; see --dry-run")
    tree[last] = os.fspath(value) if isinstance(value, os.PathLike) else value


def _explain(error: ValidationError) -> InputError:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
    if first["type"] == "extra_forbidden":
        inner = next(iter(first["input"]), "") if isinstance(first["input"], dict) else ""
        return _unknown_setting(f"{key}.{inner}".rstrip("."))
    if first["type"] == "literal_error":
        known = [name.strip(" '") for name in first["ctx"]["expected"].replace(" or ", ",").split(",")]
        return unknown(key.removesuffix(".name"), str(first["input"]), known)
    return InputError(f"{key}: expected {_expected(first)}, got {first['input']!r}")


def _unknown_setting(name: str) -> InputError:
    """The nearest settings, or where none is near the everyday ones."""
    told = unknown("setting", name, {*_dotted_names(), *SHORT})
    if "did you mean" in str(told):
        return told
    everyday = ", ".join(sorted(SHORT))
    return InputError(f"unknown setting {name!r}; known are {everyday}, and all that --dry-run shows")


def _expected(error: Any) -> str:
    """What a value should have been, in words that follow "expected"."""
    message = error["msg"].removeprefix("Input should be ").split(", unable")[0]
    if message.startswith(("greater", "less")):
        return f"a number {message}"
    return EXPECTED.get(error["type"], message[0].lower() + message[1:])


def _dotted_names() -> list[str]:
    names = []
    for name, field in Config.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names += [f"{name}.{inner}" for inner in kind.model_fields]
        else:
            names.append(name)
    return names
