"""What a search strategy is: a distribution, draws from it, and a natural-gradient step from their values.

    init -> state,      ask(key, state) -> draws (points among them),      tell(state, draws, values) -> state

All three are pure functions of arrays, so that generations run in a compiled loop, side by side over seeds,
or one at a time around a function that only Python can call.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Float, PRNGKeyArray

StrategyState = Any


class Draws(NamedTuple):
    """A population, and what the step needs to know of how it was drawn."""

    points: Float[Array, "point variable"]
    origin: Any = ()


class Strategy(NamedTuple):
    """A distribution of points that learns. `width`: how far it is from a point; `center`: its likeliest."""

    population: int
    init: Callable[[], StrategyState]
    ask: Callable[[PRNGKeyArray, StrategyState], Draws]
    tell: Callable[[StrategyState, Draws, Float[Array, " point"]], StrategyState]
    width: Callable[[StrategyState], Float[Array, ""]]
    center: Callable[[StrategyState], Float[Array, " variable"]]
