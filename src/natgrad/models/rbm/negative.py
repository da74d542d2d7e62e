"""Where the negative phase comes from: chains that start at the data, persist, or are tempered.

    cd          a few turns of Gibbs sampling from the data's own hidden states        contrastive divergence
    pcd         a few turns of chains that continue from step to step                  [tieleman2008]
    tempering   such chains at several temperatures, whose states are exchanged        [desjardins2010]

At inverse temperature t the joint energy is -E_t = a^T v + t (b^T h + h^T W v) + log base(v): a machine of
independent visible units at 0, the machine itself at 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad.core import Numbers
from natgrad.devices import placed
from natgrad.models.rbm.gibbs import Drawn, independent, turns
from natgrad.models.rbm.machine import Boltzmann, hidden_inputs
from natgrad.models.rbm.units import UnitRows

Replicas = Float[Array, "unit temperature chain"]


class Negative(NamedTuple):
    """How samples of a machine are made: `init` (key, machine), `draw` (key, carry, machine, row inputs)."""

    init: Callable[[PRNGKeyArray, Boltzmann], Any]
    draw: Callable[[PRNGKeyArray, Any, Boltzmann, UnitRows], tuple[Drawn, Any, Numbers]]


def contrastive_divergence(number: int = 1) -> Negative:
    """So many turns from the data; nothing is carried."""

    def draw(key: PRNGKeyArray, carry: Any, model: Boltzmann, inputs: UnitRows) -> tuple[Drawn, Any, Numbers]:
        key_start, key_turns = jax.random.split(key)
        start = model.hidden_units.drawn(key_start, inputs)
        return turns(key_turns, model, start, number), carry, {}

    return Negative(lambda key, model: (), draw)


def persistent(chains: int = 100, number: int = 1) -> Negative:
    """So many turns of chains whose hidden states are carried."""

    def draw(
        key: PRNGKeyArray, carry: UnitRows, model: Boltzmann, inputs: UnitRows
    ) -> tuple[Drawn, UnitRows, Numbers]:
        del inputs
        drawn = turns(key, model, carry, number)
        return drawn, drawn.hidden, {}

    return Negative(lambda key, model: independent(key, model, chains), draw)


def tempered(chains: int = 100, number: int = 1, temperatures: int = 10) -> Negative:
    """Chains at equally spaced inverse temperatures; neighbors exchange states after every turn.

    The share of proposed exchanges that are accepted is reported: that of all pairs, and of the worst one.
    """

    def init(key: PRNGKeyArray, model: Boltzmann) -> Replicas:
        start = independent(key, model, temperatures * chains)
        return _split(start.reshape(-1, temperatures, chains))

    def draw(
        key: PRNGKeyArray, carry: Replicas, model: Boltzmann, inputs: UnitRows
    ) -> tuple[Drawn, Replicas, Numbers]:
        del inputs

        def body(at: int, hidden: Replicas) -> Replicas:
            drawn, places, _ = _turn_and_swap(jax.random.fold_in(key, at), model, hidden)
            return _placed(drawn.hidden, places)

        before = jax.lax.fori_loop(1, number, body, carry) if number > 1 else carry
        drawn, places, rates = _turn_and_swap(key, model, before)
        hidden = _placed(drawn.hidden, places)
        top = lambda values: _placed(values, places[-1:])[:, 0]  # noqa: E731
        found = Drawn(top(drawn.visible), top(drawn.inputs), hidden[:, -1])
        return found, hidden, {"swap_rate": rates.mean(), "swap_rate_least": rates.min()}

    return Negative(init, draw)


def _turn_and_swap(
    key: PRNGKeyArray, model: Boltzmann, hidden: Replicas
) -> tuple[Drawn, Int[Array, "temperature chain"], Float[Array, " pair"]]:
    """A turn at every temperature, which state every place gets, and how willing each pair of places is."""
    key_turn, key_parity, key_swap = jax.random.split(key, 3)
    levels = jnp.linspace(0, 1, hidden.shape[1], dtype=hidden.dtype)
    drawn = _turn(key_turn, model, _split(hidden), levels)
    scores = (drawn.hidden * drawn.inputs).sum(axis=0)  # b^T h + h^T W v
    chances = jnp.exp(jnp.minimum((levels[1:] - levels[:-1])[:, None] * (scores[:-1] - scores[1:]), 0))
    uniform = jax.random.uniform(key_swap, chances.shape, chances.dtype)
    parity = jax.random.randint(key_parity, (), 0, 2, jnp.int32)
    chosen = jnp.arange(len(chances), dtype=jnp.int32) % 2 == parity
    swap = (uniform < chances) & chosen[:, None]
    up, down = jnp.pad(swap, ((0, 1), (0, 0))), jnp.pad(swap, ((1, 0), (0, 0)))
    places = (
        jnp.arange(hidden.shape[1], dtype=jnp.int32)[:, None] + up.astype(jnp.int32) - down.astype(jnp.int32)
    )
    return drawn, places, chances.mean(axis=1)


def _turn(key: PRNGKeyArray, model: Boltzmann, hidden: Replicas, levels: Array) -> Drawn:
    """v and then h, at every temperature; `inputs` are those of the machine itself.

    The temperatures of a chain are side by side, so that chains split over devices stay where they are.
    """
    key_visible, key_hidden = jax.random.split(key)
    chains = hidden.shape[2]
    together = hidden.swapaxes(1, 2).reshape(len(hidden), -1)
    each = jnp.tile(levels, chains)
    below = model.visible_bias[:, None] + each * (model.weight.T @ together)
    visible = model.visible_units.drawn(key_visible, below)
    inputs = hidden_inputs(model, visible)
    above = model.hidden_units.drawn(key_hidden, each * inputs)
    apart = lambda values: values.reshape(len(values), chains, -1).swapaxes(1, 2)  # noqa: E731
    return Drawn(apart(visible), apart(inputs), apart(above))


def _split(values: Replicas) -> Replicas:
    return placed(values, None, None, "rows")


def _placed(values: Replicas, places: Int[Array, "place chain"]) -> Replicas:
    """The states that belong at some places, chain by chain."""
    return jnp.take_along_axis(values, places[None], axis=1)
