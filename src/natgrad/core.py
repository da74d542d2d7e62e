"""Every contract of natgrad on one page.

    data -> model -> objective -> direction (metric, solve) -> update -> record

A stateless stage is a plain function; a stateful one a NamedTuple of pure functions. Keys come first, then
what is carried, the model, the data. A model is a frozen pytree whose leaves are its trainable arrays: a
gradient has its type. Every gradient is of a loss to be *minimized*. Steps are pure and never jit themselves.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, Protocol

from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad.tree import scale, select

Model = Any  # a pytree of trainable arrays, or the part of one that a direction moves
Carry = Any
Batch = Any
Samples = Any
Factor = Any
DampingStrength = Any  # a number, or a tree of them where an operator has one for every unit
Numbers = dict[str, Float[Array, "..."]]


class Estimate(NamedTuple):
    """Value and gradient of an objective at a model, and what was drawn to get them.

    A gradient that a solver takes as a sum over samples is not stored: `natgrad.tree.whole` makes it.
    `after` is zero, but known only when the LAPACK calls made so far in the step are done: side by side
    they can wait for each other forever, so every call depends on the one before.
    """

    value: Float[Array, ""]
    gradient: Model
    samples: Samples
    diagnostics: Numbers
    after: Float[Array, ""] | float = 0.0


class Objective(NamedTuple):
    """What is minimized. `stateless` wraps the many that carry nothing from step to step.

    `init` sees a batch of which only the shapes count. `revalue` is the loss as a function of the model
    for samples that stay as they are: its gradient at the model of an estimate is the estimate's.
    """

    init: Callable[[PRNGKeyArray, Model, Batch], Carry]
    estimate: Callable[[PRNGKeyArray, Carry, Model, Batch], tuple[Estimate, Carry]]
    revalue: Callable[[Model, Samples], Float[Array, ""]] | None = None


class Product(NamedTuple):
    """An operator made ready for products. Where it has a factor, F = R^T R with one row for each sample.

    `push` is v -> R v, `pull` is w -> R^T w, `gram` is R R^T, `rows` R itself in the order of `ravel_pytree`.
    There are `samples` rows, `outputs` of them for a row of data. `diagonal` is F's, or an estimate of it.
    """

    mv: Callable[[Model], Model]
    diagonal: Callable[[], Model] | None = None
    push: Callable[[Model], Float[Array, " sample"]] | None = None
    pull: Callable[[Float[Array, " sample"]], Model] | None = None
    gram: Callable[[], Float[Array, "sample sample"]] | None = None
    samples: int = 0
    outputs: int = 1
    rows: Callable[[], Float[Array, "sample parameter"]] | None = None


class Operator(Protocol):
    """A symmetric positive semi-definite map on a model or a part of one, as a pytree: it can be carried."""

    def bind(self) -> Product:
        """The operator, linearized once, for any number of products."""

    def mean_diagonal(self, key: PRNGKeyArray) -> DampingStrength:
        """The mean of its diagonal: one number, or some for every unit."""

    @property
    def like(self) -> Model:
        """A tree shaped like the vectors that it takes."""


class Metric(NamedTuple):
    """From a model and samples to its Fisher operator; what is carried are averages, if any.

    A metric knows nothing of damping or of solvers.
    """

    init: Callable[[PRNGKeyArray, Model, Samples], Carry]
    measure: Callable[[PRNGKeyArray, Carry, Model, Samples], tuple[Any, Carry]]


class Solution(NamedTuple):
    """The solution x of (damping I + F) x = g.

    `curvature` is x^T F x; `result` indexes `natgrad.solvers.results.SOLVED`; `residual` is what is left of
    g, as a share of it (nan where nobody looked). `iterates`, where kept for back-tracking, are [slot, ...]
    per leaf, of which the first `kept` are filled.
    """

    value: Model
    curvature: Float[Array, ""]
    iterations: Int[Array, ""]
    result: Int[Array, ""]
    residual: Float[Array, ""]
    iterates: Any = None
    kept: Int[Array, ""] | int = 0


class Solver(NamedTuple):
    """A way to solve: `prepare` once per metric, `solve` once per gradient.

    A factor may serve many gradients: that is all the K-step update is. `prepare` takes (operator, damping,
    after) and returns the factor with the next `after` (see `Estimate`); `solve` takes (factor, gradient,
    guess). `place` lays a factor out on a mesh.
    """

    prepare: Callable[[Any, DampingStrength, Any], tuple[Factor, Any]]
    solve: Callable[[Factor, Model, Model | None], Solution]
    place: Callable[[Factor], Factor] = lambda factor: factor


class Step(NamedTuple):
    """A direction found: the vector to be subtracted, how far, what is carried, and what may be described.

    `length` is None where the learning rate decides; in several parts it is a tree prefix of the model.
    `sound` is false where the solve failed: the step is then refused.
    """

    vector: Model
    carry: Carry
    evidence: Any = ()
    length: Any = None
    after: Float[Array, ""] | float = 0.0
    sound: Any = True


class Direction(NamedTuple):
    """How a gradient is measured: from an estimate to a direction of descent (metric, then solve).

    `init` sees an estimate of which only the shapes count. `keep` says what is carried after a step that was
    taken or refused, from what was carried before and after `apply`. `describe` makes numbers of an `Info`
    whose trees are those that the direction moves; they are computed only where they are asked for. A vector
    has a number for every layer.
    """

    init: Callable[[PRNGKeyArray, Model, Estimate], Carry]
    apply: Callable[[PRNGKeyArray, Carry, Model, Estimate], Step]
    keep: Callable[[Array, Carry, Carry], Carry] = lambda taken, before, after: select(taken, after, before)
    describe: Callable[["Info"], Numbers] = lambda info: {}


class State(NamedTuple):
    """What the next step needs, and nothing else; `average` is that of the models so far, if one is kept."""

    model: Model
    objective: Carry
    direction: Carry
    optimizer: Carry
    steps: Int[Array, ""]
    average: Model = ()

    @property
    def used(self) -> Model:
        """The model to be evaluated and used: the average, if one is kept."""
        return self.model if self.average == () else self.average


class Info(NamedTuple):
    """What a reader may want of one step. `result` indexes `RESULTS`; `shaped` is the optimizer's result.

    `scale` times `shaped` was added to the model: a number, or a tree prefix of the model.
    """

    value: Float[Array, ""]
    result: Int[Array, ""]
    diagnostics: Numbers
    gradient: Model
    direction: Model
    shaped: Model
    scale: Any
    evidence: Any

    @property
    def update(self) -> Model:
        """What was added to the model; made where it is asked for, since a step has no need to store it."""
        return scale(self.scale, self.shaped)


class Algorithm(NamedTuple):
    """A training method: `init` once (a batch gives the shapes), `step` for every batch."""

    init: Callable[[PRNGKeyArray, Model, Batch], State]
    step: Callable[[PRNGKeyArray, State, Batch], tuple[State, Info]]
    describe: Callable[[Info], Numbers]


class Pace(NamedTuple):
    """Steps of schedules, what rates are multiplied by, what gives (rate, damping) in place of the config."""

    steps: int
    cut: float = 1.0
    numbers: Callable[[], tuple[Any, Any]] | None = None


class Sheet(NamedTuple):
    """Pictures side by side: values in [0, 1], a row for each, and the shape of an image if they are one."""

    rows: Any  # [picture, value]
    image_shape: tuple[int, int] | None = None
    columns: int | None = None


class PointMap(NamedTuple):
    """Points of a plane, and the class of each where classes are known; the origin is where circles are."""

    points: Any  # [point, 2]
    classes: Any = None  # [point], whole numbers


class Panel(NamedTuple):
    """A section of a report: a sentence, and sheets or maps by their captions."""

    text: str
    sheets: Mapping[str, Sheet | PointMap]


class Problem(NamedTuple):
    """What a session trains, made by a `Kind` from a config and its data.

    Attributes:
        rows: what batches are drawn from, on the device; number: how many of them make an epoch.
        draw: (key, rows, order, position): batch number `position` of an epoch's order.
        stages: ((epoch, stage), ...): what changes at which epoch, the first at 0, such as the sample number;
            a stage is whatever `algorithm` understands. Losses of two stages are not compared.
        algorithm: the method of a stage at a pace. It depends on config, stage, pace and shapes only:
            programs are shared between trainings that have these, and `replaceable`, in common.
        rate: the rate of a pace by the step, for the reader; paced: whether `algorithm` takes its numbers.
        measure: what a row of the trace says of a state; always `valid_loss`.
        operations: about how many a step takes in a stage; 0 where they are too few to matter.
        ignorance: the loss of a model that knows nothing, in the unit of `Estimate.value`, as far as losses
            may rise above the first one; independent: that of independent values.
        pictures: by caption, what the state looks like; facts: for a run's environment, such as the solvers.
        replaceable: functions found in tables that `algorithm` is made of beside the config.
    """

    rows: Any
    number: int
    draw: Callable[[PRNGKeyArray, Any, Array, Array], Batch]
    algorithm: Callable[[Any, Pace], Algorithm]
    rate: Callable[[Pace], Callable[[Array], Any]]
    measure: Callable[[State], dict[str, Any]]
    stages: tuple[tuple[int, Any], ...] = ((0, None),)
    operations: Callable[[Any], int] = lambda stage: 0
    ignorance: float = 0.0
    independent: float = float("inf")
    pictures: Callable[[State], dict[str, Sheet]] = lambda state: {}
    paced: bool = False
    replaceable: Hashable = ()
    facts: Callable[[Info], dict[str, Any]] = lambda info: {}


class Kind(NamedTuple):
    """A kind of model, with JAX; its settings and its commands are in its `Spec`.

    Attributes:
        fresh: (key, config, shape): a new model; `shape` is what the data decide, the spec's `shape`. Its
            program is shared like that of `Problem.algorithm`.
        problem: (key, config, dataset): what a session trains; the key is that of evaluations.
        trained: (config, shape, model, carry): what a user gets; `carry`: the objective's arrays by name.
        panels: (run, dataset): sections of the report, by title.
    """

    fresh: Callable[[PRNGKeyArray, Any, Any], Model]
    problem: Callable[[PRNGKeyArray, Any, Any], Problem]
    trained: Callable[[Any, Any, Model, dict[str, Any]], Any]
    panels: Callable[[Any, Any], dict[str, Panel]] = lambda run, dataset: {}


TAKEN, NON_FINITE, UNSOLVED = 0, 1, 2
RESULTS = {
    TAKEN: "the step was taken",
    NON_FINITE: "the loss or the step was not finite, and the step was not taken; lower the learning rate",
    UNSOLVED: "the solve failed, or the loss would rise: the step was not taken; raise the damping",
}


def stateless(
    estimate: Callable[[PRNGKeyArray, Model, Batch], Estimate],
    revalue: Callable[[Model, Samples], Float[Array, ""]] | None = None,
) -> Objective:
    """An objective that carries nothing between steps."""

    def with_carry(key: PRNGKeyArray, carry: Carry, model: Model, batch: Batch) -> tuple[Estimate, Carry]:
        return estimate(key, model, batch), carry

    return Objective(lambda key, model, batch: (), with_carry, revalue)
