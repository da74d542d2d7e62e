"""Steps of several methods in turn, on the same model and batch [nrws sec. 8, app. B]."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from natgrad.core import TAKEN, Algorithm, Batch, Info, Model, State

Telling = Callable[[Info, list[Info]], Info]


class Turn(NamedTuple):
    """A method, and how many of its steps are taken in a row."""

    algorithm: Algorithm
    times: int = 1


def main_alone(main: Info, others: list[Info]) -> Info:
    """The step of the main method."""
    del others
    return main


def in_turn(main: Algorithm, *others: Turn, told: Telling = main_alone) -> Algorithm:
    """The steps of every other method, one after the other, then one of the main one.

    `told` makes what is described out of the last step of each. A step of any of them that was refused counts
    as one of the whole.
    """

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
        model, later, infos = state.model, [], []
        for k, turn, kept in zip(keys, others, rest, strict=True):
            after, info = _taken(k, turn, kept._replace(model=model), batch)
            model = after.model
            later.append(after._replace(model=()))
            infos.append(info)
        state, info = main.step(key_main, state._replace(model=model, objective=own), batch)
        result = _worst(info.result, *(other.result for other in infos))
        told_of = told(info, infos)._replace(result=result)
        return state._replace(objective=(state.objective, tuple(later))), told_of

    return Algorithm(init, step, main.describe)


def _taken(key: PRNGKeyArray, turn: Turn, state: State, batch: Batch) -> tuple[State, Info]:
    """All steps of a turn, and what is to be told of the last one; its result is the worst of all."""

    def body(number: Array, carried: tuple[State, Array]) -> tuple[State, Array]:
        state, info = turn.algorithm.step(jax.random.fold_in(key, number), carried[0], batch)
        return state, _worst(info.result, carried[1])

    last, result = turn.times - 1, jnp.asarray(TAKEN)
    if last:
        state, result = jax.lax.fori_loop(0, last, body, (state, result))
    state, info = turn.algorithm.step(jax.random.fold_in(key, last), state, batch)
    return state, info._replace(result=_worst(info.result, result))


def _worst(first: Array, *others: Array) -> Any:
    """The first result that is not that of a step that was taken."""
    for other in others:
        first = jnp.where(first == TAKEN, other, first)
    return first
