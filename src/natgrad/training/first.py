"""The state before any step, by a program that is kept, and the shapes of all that follows from it."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
from jaxtyping import PRNGKeyArray

from natgrad.core import Algorithm, Batch, Info, Model, State
from natgrad.devices import by_first_axis, has_mesh, sharding_of
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
    shapes = {leaf.shape for leaf in jax.tree.leaves(state.model)}
    split = lambda leaf: by_first_axis(leaf, "units") if leaf.shape in shapes else leaf  # noqa: E731
    return jax.tree.map(split, state)._replace(objective=state.objective)


def _with_layout(shape: jax.ShapeDtypeStruct, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)
