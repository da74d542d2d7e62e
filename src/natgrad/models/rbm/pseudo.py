"""The pseudo-likelihood: every visible unit given all others, and a cheap estimate of it.

    sum_i log p(v_i | v_{-i}),     log p(v_i | v_{-i}) = -softplus(f(v with unit i changed) - f(v))

with f = log sum_h exp(-E). A changed unit only shifts the hidden units' inputs by a column of W, so that one
unit takes as long as the hidden layer is wide. The estimate looks at one unit of every row, drawn at random.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from natgrad.models.rbm.machine import Boltzmann, hidden_inputs, visible_inputs
from natgrad.models.rbm.units import BernoulliUnits, PerRow, UnitRows


def pseudo_log_likelihood(model: Boltzmann, visible: UnitRows) -> PerRow:
    """The sum over all visible units, for every row; they must be Bernoulli."""
    inputs = hidden_inputs(model, visible)
    free = model.hidden_units.log_partition(inputs)

    def add(unit: int, total: PerRow) -> PerRow:
        chosen = jnp.full(visible.shape[1], unit, jnp.int32)
        return total + _conditional(model, visible, inputs, free, chosen)

    return jax.lax.fori_loop(0, visible.shape[0], add, jnp.zeros_like(free))


def pseudo_estimate(key: PRNGKeyArray, model: Boltzmann, visible: UnitRows, inputs: UnitRows) -> PerRow:
    """An unbiased estimate of it for every row, from one unit each; `inputs` are those of hidden units."""
    units, rows = visible.shape
    chosen = jax.random.randint(key, (rows,), 0, units, jnp.int32)
    free = model.hidden_units.log_partition(inputs)
    return units * _conditional(model, visible, inputs, free, chosen)


def proxy(key: PRNGKeyArray, model: Boltzmann, visible: UnitRows, inputs: UnitRows) -> PerRow:
    """What is cheap to know of rows: a pseudo-likelihood or, of Gaussian units, log p(v | mean of h)."""
    if isinstance(model.visible_units, BernoulliUnits):
        return pseudo_estimate(key, model, visible, inputs)
    above = visible_inputs(model, model.hidden_units.mean(inputs))
    units = model.visible_units
    return (visible * above).sum(axis=0) + units.log_base(visible) - units.log_partition(above)


def _conditional(
    model: Boltzmann, visible: UnitRows, inputs: UnitRows, free: PerRow, chosen: Int[Array, " row"]
) -> PerRow:
    """log p(v_i | v_{-i}) of one unit of every row."""
    assert isinstance(model.visible_units, BernoulliUnits)
    low, high = model.visible_units.coding
    own = jnp.take_along_axis(visible, chosen[None], axis=0)[0]
    change = low + high - 2 * own
    shifted = inputs + change * model.weight[:, chosen]
    gain = change * model.visible_bias[chosen] + model.hidden_units.log_partition(shifted) - free
    return -jax.nn.softplus(gain)
