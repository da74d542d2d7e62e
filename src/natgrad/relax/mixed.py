"""Binary and continuous variables together: a product of two distributions, ranked by the same values.

The Fisher matrix of a product is block-diagonal, so that the natural gradient of the whole is the natural
gradient of each part with the other's draws integrated out by the population.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.relax.strategy import Draws, Strategy, StrategyState


def product(left: Strategy, right: Strategy, split: int) -> Strategy:
    """Two strategies of the same population; the first `split` variables are the left one's."""

    def init() -> StrategyState:
        return left.init(), right.init()

    def ask(key: PRNGKeyArray, state: StrategyState) -> Draws:
        key_left, key_right = jax.random.split(key)
        drawn = left.ask(key_left, state[0]), right.ask(key_right, state[1])
        points = jnp.concatenate([drawn[0].points, drawn[1].points], axis=1)
        return Draws(points, (drawn[0].origin, drawn[1].origin))

    def tell(state: StrategyState, draws: Draws, values: Float[Array, " point"]) -> StrategyState:
        first = Draws(draws.points[:, :split], draws.origin[0])
        second = Draws(draws.points[:, split:], draws.origin[1])
        return left.tell(state[0], first, values), right.tell(state[1], second, values)

    def width(state: StrategyState) -> Float[Array, ""]:
        return right.width(state[1])

    def center(state: StrategyState) -> Array:
        return jnp.concatenate([left.center(state[0]), right.center(state[1])])

    return Strategy(left.population, init, ask, tell, width, center)
