"""The best state of a training on validation data: the one that is used, whatever comes after it."""

import math
from typing import Any, NamedTuple

import jax

from natgrad.core import Carry, Model, State
from natgrad.records import state as states
from natgrad.records.notes import TrainingProgress


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
