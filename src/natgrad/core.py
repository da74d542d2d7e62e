"""Every contract of natgrad on one page.

    data -> model -> objective -> direction (metric, solve) -> update -> record

A stateless stage is a plain function; a stateful one a NamedTuple of pure functions. Keys come
first, then what is carried, then the model, then the data. A model is a frozen pytree whose
leaves are exactly its trainable arrays, so that a gradient has the model's own type. Every
gradient is of a loss to be *minimised*. Steps are pure and never jit themselves.

Arrays are *units-major*: `[unit, sample, row]`, where `row` counts data points and `sample` the
draws made for each. An axis of length one stands for "the same for all".
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad import tree

Model = Any
Carry = Any
Batch = Any


class Estimate(NamedTuple):
    """Value and gradient of an objective at a model, and what was drawn to get them."""

    value: Float[Array, ""]
    gradient: Model
    samples: Any
    diagnostics: dict[str, Float[Array, ""]]


class Objective(NamedTuple):
    """What is minimised. `stateless` wraps the many that carry nothing from step to step."""

    init: Callable[[PRNGKeyArray, Model], Carry]
    estimate: Callable[[PRNGKeyArray, Carry, Model, Batch], tuple[Estimate, Carry]]


class Direction(NamedTuple):
    """How a gradient is measured: from an estimate to a direction of descent (metric, then solve).

    `init` sees an estimate of which only the shapes count. `apply` also returns evidence: whatever
    `diagnose` needs to describe the direction, at no cost where nobody asks. `keep` says what is carried
    on after a step that was taken or refused, from what was carried before and after `apply`.
    """

    init: Callable[[PRNGKeyArray, Model, Estimate], Carry]
    apply: Callable[[PRNGKeyArray, Carry, Model, Estimate], tuple[Model, Carry, Any]]
    keep: Callable[[Array, Carry, Carry], Carry] = lambda taken, before, after: tree.select(
        taken, after, before
    )


class State(NamedTuple):
    """What the next step needs, and nothing else; `average` is that of the models so far, if one is kept."""

    model: Model
    objective: Carry
    direction: Carry
    optimizer: Carry
    steps: Int[Array, ""]
    average: Model = ()


class Info(NamedTuple):
    """What a reader may want of one step. `result` indexes `RESULTS`; `shaped` is the optimiser's result."""

    value: Float[Array, ""]
    result: Int[Array, ""]
    diagnostics: dict[str, Float[Array, ""]]
    gradient: Model
    direction: Model
    shaped: Model
    scale: Any
    evidence: Any

    @property
    def update(self) -> Model:
        """What was added to the model; made where it is asked for, since a step has no need to store it."""
        return tree.scale(self.scale, self.shaped)


class Algorithm(NamedTuple):
    """A training method: `init` once (a batch gives the shapes), `step` for every batch."""

    init: Callable[[PRNGKeyArray, Model, Batch], State]
    step: Callable[[PRNGKeyArray, State, Batch], tuple[State, Info]]


class Problem(NamedTuple):
    """What a session trains: everything that depends on the model's family, made from a config and its data.

    Attributes:
        fresh: a new model.
        algorithm: the method of a config, for that many steps; the session cuts rates and lets samples grow.
        rows: what batches are drawn from, on the device; number: how many of them make an epoch.
        draw: (key, rows, order, position): batch number `position` of an epoch's order.
        measure: what a row of the trace says of a model; always `valid_loss`, `valid_ll` and `test_ll`.
        scale: the loss of a model that knows nothing; jumps of the loss are measured by it.
        chunk: the steps of a chunk, for a number of samples.
        outputs: how many outputs a network has; 0 for other models.
    """

    fresh: Callable[[PRNGKeyArray], Model]
    algorithm: Callable[[Any, int], Algorithm]
    rows: Any
    number: int
    draw: Callable[[PRNGKeyArray, Any, Array, Array], Batch]
    measure: Callable[[Model], dict[str, Any]]
    scale: float
    chunk: Callable[[int], int]
    outputs: int = 0


TAKEN, NON_FINITE = 0, 1
RESULTS = {
    TAKEN: "the step was taken",
    NON_FINITE: "the loss or the step was not finite, and the step was not taken; lower the learning rate",
}


def stateless(estimate: Callable[[PRNGKeyArray, Model, Batch], Estimate]) -> Objective:
    """An objective that carries nothing between steps."""

    def init(key: PRNGKeyArray, model: Model) -> Carry:
        del key, model
        return ()

    def with_carry(key: PRNGKeyArray, carry: Carry, model: Model, batch: Batch) -> tuple[Estimate, Carry]:
        return estimate(key, model, batch), carry

    return Objective(init, with_carry)


def steepest() -> Direction:
    """The Euclidean direction: the gradient itself."""

    def init(key: PRNGKeyArray, model: Model, estimate: Estimate) -> Carry:
        del key, model, estimate
        return ()

    def apply(key: PRNGKeyArray, carry: Carry, model: Model, estimate: Estimate) -> tuple[Model, Carry, Any]:
        del key, model
        return estimate.gradient, carry, ()

    return Direction(init, apply)


def finite(*values: Any) -> Array:
    """Whether every scalar given is finite."""
    return jnp.all(jnp.isfinite(jnp.stack([jnp.asarray(value) for value in values])))
