"""Steps of several methods in turn, on the same model and batch [nrws sec. 8, app. B]."""

from typing import Any, NamedTuple

import jax
from jaxtyping import Array, PRNGKeyArray

from natgrad.core import Algorithm, Batch, Info, Model, State


class Turn(NamedTuple):
    """A method, and how many of its steps are taken in a row."""

    algorithm: Algorithm
    times: int = 1


def in_turn(main: Algorithm, *others: Turn) -> Algorithm:
    """The steps of every other method, one after the other, then one of the main one, which is described."""

    def init(key: PRNGKeyArray, model: Model, batch: Batch) -> State:
        key_main, *keys = jax.random.split(key, 1 + len(others))
        state = main.init(key_main, model, batch)
        rest = tuple(
            turn.algorithm.init(k, model, batch)._replace(model=())
            for k, turn in zip(keys, others, strict=True)
        )
        return state._replace(objective=(state.objective, rest))

    def step(key: PRNGKeyArray, state: State, batch: Batch) -> tuple[State, Info]:
        key_main, *keys = jax.random.split(key, 1 + len(others))
        own, rest = state.objective
        model, later = state.model, []
        for k, turn, kept in zip(keys, others, rest, strict=True):
            after = _taken(k, turn, kept._replace(model=model), batch)
            model = after.model
            later.append(after._replace(model=()))
        state, info = main.step(key_main, state._replace(model=model, objective=own), batch)
        return state._replace(objective=(state.objective, tuple(later))), info

    return Algorithm(init, step, main.describe)


def _taken(key: PRNGKeyArray, turn: Turn, state: State, batch: Batch) -> State:
    def body(number: Array, carried: Any) -> Any:
        return turn.algorithm.step(jax.random.fold_in(key, number), carried, batch)[0]

    return jax.lax.fori_loop(0, turn.times, body, state)
