"""log Z by enumeration of the smaller layer: exact, compiled, in portions of bounded memory.

    Z = sum_h exp(b^T h) prod_i A(a_i + (W^T h)_i)                        [salakhutdinov2008]

where A is a visible unit's own sum. A portion holds all states of the first few units; those of the others
only shift its inputs, so that there is one matrix product for all portions.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from natgrad.models.rbm.limits import MOST_UNITS, check_enumerable
from natgrad.models.rbm.machine import Boltzmann, negative_free_energy, swapped
from natgrad.models.rbm.units import PerRow, UnitRows

_PORTION = 2**20  # inputs in memory at a time


def smaller_side(model: Boltzmann) -> int:
    """How many units have to be enumerated."""
    return min(model.sizes) if model.visible_units.finite else model.sizes[1]


def is_enumerable(model: Boltzmann) -> bool:
    """Whether log Z can be computed exactly."""
    return smaller_side(model) <= MOST_UNITS


def exact_log_z(model: Boltzmann) -> Float[Array, ""]:
    """log Z, a sum over all states of the smaller layer. Its gradient is the mean of the statistics."""
    turned = _smaller_above(model)
    visible, hidden = turned.sizes
    first = min(hidden, max(0, (_PORTION // visible).bit_length() - 1))
    inner = every_state(turned, first)
    inputs = turned.weight[:first].T @ inner + turned.visible_bias[:, None]
    linear = turned.hidden_bias[:first] @ inner

    @jax.checkpoint
    def portion(number: Array) -> Float[Array, ""]:
        outer = state_numbered(turned, number, hidden - first)
        shifted = inputs + (turned.weight[first:].T @ outer)[:, None]
        logs = linear + turned.hidden_bias[first:] @ outer + turned.visible_units.log_partition(shifted)
        return logsumexp(logs)

    return logsumexp(jax.lax.map(portion, jnp.arange(2 ** (hidden - first), dtype=jnp.uint32)))


def exact_log_likelihood(model: Boltzmann, visible: UnitRows) -> PerRow:
    """log p(v) of every row."""
    return negative_free_energy(model, visible) - exact_log_z(model)


def every_state(model: Boltzmann, units: int) -> UnitRows:
    """All states of so many hidden units, as columns."""
    numbers = np.arange(2**units, dtype=np.uint32)
    on = (numbers >> np.arange(units, dtype=np.uint32)[:, None]) & 1
    return model.hidden_units.coding.value(jnp.asarray(on), model.hidden_bias.dtype)


def state_numbered(model: Boltzmann, number: Array, units: int) -> Float[Array, " unit"]:
    """The state of so many units that a number stands for."""
    on = (number >> jnp.arange(units, dtype=jnp.uint32)) & jnp.uint32(1)
    return model.hidden_units.coding.value(on, model.hidden_bias.dtype)


def _smaller_above(model: Boltzmann) -> Boltzmann:
    """The machine with its smaller layer as the hidden one, where that can be."""
    visible, hidden = model.sizes
    check_enumerable(visible, hidden, gaussian=not model.visible_units.finite)
    return swapped(model) if model.visible_units.finite and visible < hidden else model
