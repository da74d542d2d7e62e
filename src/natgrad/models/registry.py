"""Which kinds of model there are, and what is known of each without importing JAX.

A kind is a folder with a module that holds its `Spec`: one line of `FOLDERS`, or an entry point of
the group `natgrad.models` in somebody else's package:

    [project.entry-points."natgrad.models"]
    toy = "toy_package.spec:SPEC"

Everything heavier than settings is named by "module:NAME" and imported when it is used.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from natgrad.errors import unknown

DEFAULT = "helmholtz"
FOLDERS = {
    "helmholtz": "natgrad.models.helmholtz.spec:SPEC",
    "mlp": "natgrad.models.network.spec:SPEC",
    "convnet": "natgrad.models.network.spec:SPEC",
    "autoencoder": "natgrad.models.network.spec:SPEC",
}
"""The specs of natgrad's own kinds by name."""


@dataclass(frozen=True)
class Column:
    """A column of the trace, as a reader wants to see it.

    Attributes:
        name: its key in the trace; title: what it is; unit: of its values.
        higher: whether higher is better; None where neither is.
        chart: columns of the same chart are drawn together; by default each has its own, under its title.
        percent: whether it is shown as a percentage; log: whether its axis is logarithmic.
        error: the column that holds its standard error.
        note: what a reader should know.
        final: whether it belongs to a run's final figures.
    """

    name: str
    title: str
    unit: str = ""
    higher: bool | None = None
    chart: str = ""
    percent: bool = False
    log: bool = False
    error: str = ""
    note: str = ""
    final: bool = False


COLUMNS = (
    Column("train_loss", "train loss", higher=False, chart="Loss", final=True),
    Column("valid_loss", "valid loss", higher=False, chart="Loss"),
    Column("step_kl", "KL length of a step", unit="nats", log=True, note="half of step·F·step"),
    Column("gradient_norm", "gradient norm", log=True),
    Column("direction_norm", "direction norm", log=True, note="after the solve"),
    Column("step_norm", "step norm", log=True),
    Column("cosine", "cosine of gradient and direction"),
    Column("solver_iterations", "solver iterations"),
    Column("residual", "residual of the solve", log=True, note="relative"),
    Column("condition", "condition of the damped blocks", log=True, note="largest, estimated"),
    Column("damping", "damping", log=True),
    Column("rate", "rate of the step", log=True),
    Column("reduction_ratio", "reduction ratio", note="actual over predicted fall of the loss"),
    Column("steps_refused", "steps refused", note="not finite or not solved, and not taken"),
    Column("divergences", "divergences", note="chunks taken again with a smaller step"),
)
"""What all traces may hold, beside epoch, step and seconds."""


@dataclass(frozen=True)
class Spec:
    """A kind of model, or several that share a folder, without JAX.

    Attributes:
        kinds: the names that `model.kind` may have, each with a line about it.
        settings: the config class of every (kind, method); the first method of a kind is its default.
        methods: a line about every method.
        short: short names of settings, used as flags and in Python, by their dotted names.
        columns: what the trace holds beside what all traces do.
        criterion: the validation column by which runs are compared; headline: the one that is reported.
        shape: a pydantic model of what the data decide (sizes), enough to make the model again.
        is_scheduled: (config): whether anything in it follows a schedule.
        check: (config, dataset): refuses what does not fit the data, before anything is compiled.
        kind: "module:NAME" of the `natgrad.core.Kind`.
        commands: "module:function" of the commands evaluate, sample, fisher and any others.
        estimators: "module:NAME" of scikit-learn estimators by their public names.
    """

    kinds: Mapping[str, str]
    settings: Mapping[tuple[str, str], type[Any]]
    methods: Mapping[str, str]
    short: Mapping[str, str]
    columns: tuple[Column, ...]
    criterion: str
    headline: str
    shape: type[Any]
    kind: str
    is_scheduled: Callable[[Any], bool] = lambda config: True
    check: Callable[[Any, Any], None] = lambda config, dataset: None
    commands: Mapping[str, str] = field(default_factory=dict)
    estimators: Mapping[str, str] = field(default_factory=dict)

    def methods_of(self, kind: str) -> list[str]:
        """The methods that train a kind, its default first."""
        return [method for name, method in self.settings if name == kind]


def kind_names() -> list[str]:
    """The names of all kinds, natgrad's own first."""
    return [*FOLDERS, *(point for point in _plugged() if point not in FOLDERS)]


def spec_of(kind: str) -> Spec:
    """The spec of a kind."""
    if kind in FOLDERS:
        return resolve_reference(FOLDERS[kind])
    if kind in _plugged():
        return _plugged()[kind].load()
    raise unknown("model", kind, kind_names())


def specs() -> Iterator[Spec]:
    """Every spec once."""
    seen: list[Spec] = []
    for spec in map(spec_of, kind_names()):
        if spec not in seen:
            seen.append(spec)
            yield spec


def column_of(name: str) -> Column | None:
    """What is known of a column of the trace, of whatever kind."""
    every = (column for spec in specs() for column in (*spec.columns, *COLUMNS))
    return next((column for column in every if column.name == name), None)


def is_higher_better(name: str) -> bool:
    """Whether more of a column is better."""
    column = column_of(name)
    return column is not None and bool(column.higher)


def resolve_reference(place: str) -> Any:
    """What "module:NAME" stands for."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@functools.cache
def _plugged() -> dict[str, Any]:
    """Entry points of other packages, by the kind that each is named after."""
    return {point.name: point for point in entry_points(group="natgrad.models")}
