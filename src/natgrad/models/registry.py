"""Which kinds of model there are, and what is known of each without importing JAX.

A kind is a folder with a module that holds its `Spec`: one line of `FOLDERS`, or an entry point of
the group `natgrad.models` in somebody else's package:

    [project.entry-points."natgrad.models"]
    toy = "toy_package.spec:SPEC"

Everything heavier than settings is named by "module:NAME" and imported when it is used.
"""

import functools
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel

from natgrad.errors import unknown

DEFAULT = "helmholtz"
FOLDERS = {
    "helmholtz": "natgrad.models.helmholtz.spec:SPEC",
    "mlp": "natgrad.models.network.spec:SPEC",
    "convnet": "natgrad.models.network.spec:SPEC",
    "autoencoder": "natgrad.models.network.spec:SPEC",
    "rbm": "natgrad.models.rbm.spec:SPEC",
    "vae": "natgrad.models.vae.spec:SPEC",
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


TRAIN_LOSS = Column("train_loss", "train loss", higher=False, chart="Loss", final=True)
COLUMNS = (
    TRAIN_LOSS,
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
    Column("metric_age", "age of the metric", unit="steps", note="that it had served before this one"),
    Column("metric_moved", "KL since the metric was renewed", unit="nats", note="the sum over its steps"),
    Column("metric_renewals", "renewals of the metric"),
    Column("rate", "rate of the step", log=True),
    Column("reduction_ratio", "reduction ratio", note="actual over predicted fall of the loss"),
    Column("steps_refused", "steps refused", note="not finite or not solved, and not taken"),
    Column("divergences", "divergences", note="chunks taken again with a smaller step"),
)
"""What all traces may hold, beside epoch, step, seconds and cpu_seconds."""

NATS = "nats per row"
TEST_LL = Column(
    "test_ll",
    "test LL",
    NATS,
    higher=True,
    chart="Test log-likelihood",
    error="test_ll_se",
    note="band: two standard errors over rows",
    final=True,
)
"""The log-likelihood of test rows, of every kind that has one."""
METRIC_NAMES = {"damping": "metric.damping", "refresh": "metric.refresh", "solver": "metric.solver"}
"""Short names of a metric's settings, of every kind that has them."""


class Shape(BaseModel, frozen=True, extra="forbid"):
    """What the data decide: enough, with the config, to make the model again. A kind may add to it."""

    visible: int
    image_shape: tuple[int, int] | None = None

    @classmethod
    def of(cls, config: Any, dataset: Any) -> "Shape":
        """What a data set decides of a config's model."""
        del config
        return cls(visible=dataset.visible, image_shape=dataset.image_shape)


class MeasuredShape(Shape):
    """What the data decide: the size, and how many training rows have which means."""

    means: tuple[float, ...]
    rows: int

    @classmethod
    def of(cls, config: Any, dataset: Any) -> "MeasuredShape":
        """The size and the means of a data set."""
        del config
        means, rows = tuple(dataset.means.tolist()), len(dataset.train)
        return cls(visible=dataset.visible, image_shape=dataset.image_shape, means=means, rows=rows)


class Settings(Mapping[tuple[str, str], type[Any]]):
    """The config class of every (kind, method), composed where it is first looked up: most never are."""

    def __init__(self, compose: Callable[[str, str], type[Any]], readers: Sequence[tuple[str, str]]) -> None:
        self._compose, self._readers = compose, readers
        self.composed: dict[tuple[str, str], type[Any]] = {}

    def __getitem__(self, reader: tuple[str, str]) -> type[Any]:
        if reader not in self._readers:
            raise KeyError(reader)
        if reader not in self.composed:
            self.composed[reader] = self._compose(*reader)
        return self.composed[reader]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


@dataclass(frozen=True, kw_only=True, eq=False)
class Spec:
    """A kind of model, or several that share a folder, without JAX.

    Attributes:
        kinds: the names that `model.kind` may have, each with a line about it.
        settings: the config class of every (kind, method), as `Settings` or a dict; the first method of a
            kind is its default.
        methods: a line about every method.
        short: short names of settings, used as flags and in Python, by their dotted names.
        columns: what the trace holds beside what all traces do.
        criterion: the column on validation data by which runs are compared and the best state is chosen.
        headline: the column that is reported; of several the first that a trace has.
        shape: what the data decide of the model.
        is_scheduled: (config): whether anything in it follows a schedule that has an end.
        check: (config, dataset): refuses what does not fit the data, before anything is compiled.
        kind: "module:NAME" of the `natgrad.core.Kind`.
        commands: "module:function" of the commands evaluate, sample, fisher and any others.
        estimators: "module:NAME" of scikit-learn estimators by their public names.
    """

    kinds: Mapping[str, str]
    settings: Mapping[tuple[str, str], type[Any]]
    methods: Mapping[str, str]
    short: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    criterion: str = "valid_loss"
    headline: str | tuple[str, ...]
    shape: type[Shape] = Shape
    kind: str
    is_scheduled: Callable[[Any], bool] = lambda config: True
    check: Callable[[Any, Any], None] = lambda config, dataset: None
    commands: Mapping[str, str] = field(default_factory=dict)
    estimators: Mapping[str, str] = field(default_factory=dict)

    def headline_of(self, row: Container[str] = ()) -> str:
        """The column that is reported of a trace with such rows."""
        named = (self.headline,) if isinstance(self.headline, str) else self.headline
        return next((name for name in named if name in row), named[0])

    def judged(self, row: Mapping[str, Any]) -> float:
        """How good a row of the trace is on validation data: the lower, the better."""
        value = row.get(self.criterion)
        if value is None or not math.isfinite(value):
            return math.inf
        found = next((each for each in (*self.columns, *COLUMNS) if each.name == self.criterion), None)
        return -value if found is not None and found.higher else value

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
