"""Means and covariances of both layers under a machine: exact, or from samples of the visible layer.

One layer x has states with chances, its own or those of samples; the other, y, is independent given x, with
closed forms. All that is asked for is a sum over x in portions (`Joint.total`), so that the same formula
is exact where all states are visited, and free of the noise of y where x was drawn.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad import tree
from natgrad.models.rbm.machine import (
    Boltzmann,
    hidden_inputs,
    hidden_marginal,
    negative_free_energy,
    visible_inputs,
)
from natgrad.models.rbm.objectives import Contrast
from natgrad.models.rbm.partition import exact_log_z, state_numbered
from natgrad.models.rbm.units import LayerUnits, UnitRows

_PORTION = 2**20  # inputs in memory at a time


class Portion(NamedTuple):
    """Some states of x with their chances, and the inputs of y given each."""

    states: UnitRows
    inputs: UnitRows
    chances: Float[Array, " state"]


class Joint(NamedTuple):
    """A distribution of both layers.

    Attributes:
        total: the sum over portions of what a function makes of each.
        others: the units of y.
        hidden_first: whether x is the hidden layer.
    """

    total: Callable[[Callable[[Portion], Any]], Any]
    others: LayerUnits
    hidden_first: bool


class Covariances(NamedTuple):
    """The means of x and y, and the blocks of their joint covariance."""

    x: Float[Array, " x"]
    y: Float[Array, " y"]
    xx: Float[Array, "x x"]
    yy: Float[Array, "y y"]
    xy: Float[Array, "x y"]


def enumerated_joint(model: Boltzmann) -> Joint:
    """The machine itself, by all states of its smaller layer."""
    visible, hidden = model.sizes
    hidden_first = not model.visible_units.finite or hidden <= visible
    x, y = (hidden, visible) if hidden_first else (visible, hidden)
    bits = min(x, max(0, (_PORTION // y).bit_length() - 1))
    log_z = exact_log_z(model)

    def portion(start: Array) -> Portion:
        numbers = start + jnp.arange(2**bits, dtype=jnp.uint32)
        states = jax.vmap(lambda number: state_numbered(model, number, x), out_axes=1)(numbers)
        if hidden_first:
            return Portion(
                states, visible_inputs(model, states), jnp.exp(hidden_marginal(model, states) - log_z)
            )
        return Portion(
            states, hidden_inputs(model, states), jnp.exp(negative_free_energy(model, states) - log_z)
        )

    def total(function: Callable[[Portion], Any]) -> Any:
        starts = jnp.arange(2 ** (x - bits), dtype=jnp.uint32) << bits
        if bits == x:
            return function(portion(starts[0]))
        zero = tree.zeros(jax.eval_shape(lambda start: function(portion(start)), starts[0]))
        add = lambda sums, start: (tree.add(sums, function(portion(start))), None)  # noqa: E731
        return jax.lax.scan(add, zero, starts)[0]

    return Joint(total, model.visible_units if hidden_first else model.hidden_units, hidden_first)


def sampled_joint(model: Boltzmann, visible: UnitRows, inputs: UnitRows) -> Joint:
    """Visible samples or rows of data, with W v + b, and the hidden units that they would have."""
    number = visible.shape[1]
    only = Portion(visible, inputs, jnp.full((number,), 1 / number, visible.dtype))
    return Joint(lambda function: function(only), model.hidden_units, False)


def joint_of(model: Boltzmann, drawn: Contrast) -> Joint:
    """The machine as a step has seen it: its chains, or all states where it has none."""
    if drawn.chains is None:
        return enumerated_joint(model)
    return sampled_joint(model, drawn.chains.visible, drawn.chains.inputs)


def joint_of_data(model: Boltzmann, drawn: Contrast) -> Joint:
    """The data of a step with the hidden units that they have."""
    return sampled_joint(model, drawn.rows, hidden_inputs(model, drawn.rows))


def covariances(joint: Joint) -> Covariances:
    """Means and blocks, of two passes: differences are taken before products."""
    units = joint.others
    x, y = joint.total(lambda each: (each.states @ each.chances, units.mean(each.inputs) @ each.chances))

    def products(each: Portion) -> tuple[Array, Array, Array]:
        below, above = each.states - x[:, None], units.mean(each.inputs) - y[:, None]
        weighed = below * each.chances
        noise = jnp.diag(units.variance(each.inputs) @ each.chances)
        return weighed @ below.T, (above * each.chances) @ above.T + noise, weighed @ above.T

    return Covariances(x, y, *joint.total(products))


def third_cumulants(units: LayerUnits, inputs: UnitRows) -> UnitRows:
    """The derivative of the variance by the input, A'''(y)."""
    return jax.jvp(units.variance, (inputs,), (jnp.ones_like(inputs),))[1]
