"""Sleep well: several steps of one method before every step of another [nrws sec. 8, app. B]."""

from typing import Any

import jax
from jaxtyping import Array, PRNGKeyArray

from natgrad.core import Algorithm, Batch, Info, Model, State


def alternate(main: Algorithm, extra: Algorithm, times: int) -> Algorithm:
    """Take `times` steps of `extra`, then one of `main`, on the same model and batch."""

    def init(key: PRNGKeyArray, model: Model, batch: Batch) -> State:
        key_main, key_extra = jax.random.split(key)
        state = main.init(key_main, model, batch)
        other = extra.init(key_extra, model, batch)
        return state._replace(objective=(state.objective, other._replace(model=())))

    def step(key: PRNGKeyArray, state: State, batch: Batch) -> tuple[State, Info]:
        key_main, key_extra = jax.random.split(key)
        inner, other = state.objective

        def body(turn: Array, carried: Any) -> Any:
            return extra.step(jax.random.fold_in(key_extra, turn), carried, batch)[0]

        other = jax.lax.fori_loop(0, times, body, other._replace(model=state.model))
        after, info = main.step(key_main, state._replace(model=other.model, objective=inner), batch)
        return after._replace(objective=(after.objective, other._replace(model=()))), info

    return Algorithm(init, step)
