"""Block Gibbs sampling as one compiled loop: all units of a layer at once, then all of the other.

A chain is its *hidden* state. A turn draws v given h and h given v: of the two products that it takes, the
second is the one that a gradient needs of the last v, too.
"""

from typing import NamedTuple

import jax
from jaxtyping import PRNGKeyArray

from natgrad.devices import placed
from natgrad.models.rbm.machine import Boltzmann, hidden_inputs, visible_inputs
from natgrad.models.rbm.units import UnitRows


class Drawn(NamedTuple):
    """The end of some chains: a state of both layers, and the inputs W v + b that h was drawn from."""

    visible: UnitRows
    inputs: UnitRows
    hidden: UnitRows


def turn(key: PRNGKeyArray, model: Boltzmann, hidden: UnitRows) -> Drawn:
    """v ~ p(v | h), then h ~ p(h | v)."""
    key_visible, key_hidden = jax.random.split(key)
    hidden = placed(hidden, None, "rows")
    visible = model.visible_units.drawn(key_visible, visible_inputs(model, hidden))
    inputs = hidden_inputs(model, visible)
    return Drawn(visible, inputs, model.hidden_units.drawn(key_hidden, inputs))


def turns(key: PRNGKeyArray, model: Boltzmann, hidden: UnitRows, number: int) -> Drawn:
    """So many turns, at least one, from given hidden states."""

    def body(at: int, drawn: Drawn) -> Drawn:
        return turn(jax.random.fold_in(key, at), model, drawn.hidden)

    first = turn(key, model, hidden)
    return jax.lax.fori_loop(1, number, body, first) if number > 1 else first


def independent(key: PRNGKeyArray, model: Boltzmann, number: int) -> UnitRows:
    """Hidden states to start chains from: every unit by its bias alone."""
    inputs = jax.numpy.broadcast_to(model.hidden_bias[:, None], (model.sizes[1], number))
    return placed(model.hidden_units.drawn(key, inputs), None, "rows")
