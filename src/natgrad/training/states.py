"""States of a training: the one before any step, by a program that is kept, and the best on validation data.

The best is the one that is used, whatever comes after it.
"""

import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
from jaxtyping import PRNGKeyArray

from natgrad.core import Algorithm, Batch, Carry, Info, Model, State
from natgrad.devices import by_first_axis, has_mesh, sharding_of
from natgrad.records import state as states
from natgrad.records.notes import TrainingProgress
from natgrad.training.chunk import Totals, totals_of
from natgrad.training.compile import compiled, kept


class TrainingShapes(NamedTuple):
    """Shapes of the state, of what a step tells, and of what is summed of it."""

    state: State
    info: Info
    sums: Totals


class FirstState(NamedTuple):
    """How a stage begins: a new model, the method, and a batch of which only the shapes count.

    `made_of` is all that these depend on beside the shapes of the batch: trainings that have it in common
    share what is traced and compiled.
    """

    fresh: Callable[[PRNGKeyArray], Model]
    algorithm: Algorithm
    batch: Batch
    made_of: Hashable

    def of(self, key: PRNGKeyArray) -> State:
        """The state that a key decides."""
        found: State = self._program(key)(key)
        return found

    def _program(self, key: PRNGKeyArray) -> Any:
        return kept(("first", self.made_of), lambda: compiled(self._initial, key), self.batch)

    def shapes(self, key: PRNGKeyArray) -> TrainingShapes:
        """The shapes that every key gives."""
        return kept(("shapes", self.made_of), lambda: self._shapes(key), self.batch)

    def _shapes(self, key: PRNGKeyArray) -> TrainingShapes:
        state = jax.eval_shape(self._initial, key)
        _, info = jax.eval_shape(self.algorithm.step, key, state, self.batch)
        if has_mesh():
            state = jax.tree.map(_with_layout, state, self._program(key).output_shardings)
        sums: Any = jax.eval_shape(lambda info: totals_of(self.algorithm, info), info)
        return TrainingShapes(state, info, sums)

    def _initial(self, key: PRNGKeyArray) -> State:
        key_init, key_state = jax.random.split(key)
        return _by_units(self.algorithm.init(key_state, self.fresh(key_init), self.batch))


def laid_out(state: State, shape: State) -> State:
    """A state where its shapes say that it lives: what is saved carries no layout."""
    return jax.device_put(state, jax.tree.map(sharding_of, shape)) if has_mesh() else state


def _by_units(state: State) -> State:
    """The model, and what is shaped like it, split by units: the first axis of its arrays."""
    if not has_mesh():
        return state
    shapes = {leaf.shape for leaf in jax.tree.leaves(state.model)}
    split = lambda leaf: by_first_axis(leaf, "units") if leaf.shape in shapes else leaf  # noqa: E731
    return jax.tree.map(split, state)._replace(objective=state.objective)


def _with_layout(shape: jax.ShapeDtypeStruct, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)


class Best(NamedTuple):
    """The model in use at the best evaluation so far, what its objective carried, and its row of the trace.

    What was carried is dropped where a later stage carries other shapes.
    """

    model: Model = ()
    objective: Carry = ()
    row: dict[str, Any] = {}  # noqa: RUF012

    def state(self, last: State) -> State:
        """A state with this model; all else is the last state's."""
        carried = self.objective if jax.tree.leaves(self.objective) else last.objective
        return last._replace(model=self.model, average=(), objective=carried)


class Saved(NamedTuple):
    """The arrays of a saved state; `best` is the best model so far, and what its objective carried."""

    state: Any
    totals: Any
    best: Any
    best_objective: Any


def stored_best(stored: states.Stored, shape: State, at: TrainingProgress) -> Best:
    """The shapes of the best state that a saved state holds, and its row.

    Of a run that kept no such state, the next evaluation is the best so far.
    """
    if not (stored.notes.best and stored.has("best")):
        at.best, at.stale = math.inf, 0
        return Best()
    carried = shape.objective if stored.has("best_objective") else ()
    return Best(shape.model, carried, stored.notes.best)
