"""The exact covariance of a small machine's statistics by the two-stage formula, in portions of states.

    Cov(T) = sum_h p(h) ((E[T | h] - E[T]) (E[T | h] - E[T])^T + Cov(T | h))         [nbm sec. 3]

Given h the visible units are independent, so E[T | h] and Cov(T | h) are closed forms. All products of (h, 1)
and (v, 1) are looked at together: their means are those of (h, 1) and (E[v | h], 1), and the covariance of
h_j v_i with h_k v_i is h_j h_k Var(v_i | h). No visible state is visited, and p(h) is that of
`hidden_marginal`. Without the second term, and with the layers exchanged, this is the covariance of E[T | v]:
the Fisher of p(v).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natgrad.models.rbm.limits import check_storable
from natgrad.models.rbm.machine import Boltzmann, hidden_marginal, swapped, visible_inputs
from natgrad.models.rbm.partition import exact_log_z, state_numbered

_PORTION = 2**20  # statistics in memory at a time


class Given(NamedTuple):
    """Of some hidden states: h^ and m^, the visible variances, and the probabilities."""

    hidden: Float[Array, "hidden_1 state"]
    means: Float[Array, "visible_1 state"]
    variances: Float[Array, "visible state"]
    chances: Float[Array, " state"]


def joint_covariance(model: Boltzmann, *, marginal: bool = False) -> Float[Array, "parameter parameter"]:
    """Cov(T), or Cov(E[T | v]) where `marginal`, in the order of the machine's leaves."""
    visible, hidden = model.sizes
    check_storable(visible, hidden, gaussian=not model.visible_units.finite, marginal=marginal)
    if not marginal and (not model.visible_units.finite or hidden <= visible):
        return _enumerated(model, noise=True)[np.ix_(*(_order(visible, hidden),) * 2)]
    turned = _order(hidden, visible)
    square = np.arange(visible * hidden).reshape(visible, hidden).T.ravel()
    ends = visible * hidden + np.arange(visible + hidden)
    places = turned[np.concatenate([square, ends[visible:], ends[:visible]])]
    return _enumerated(swapped(model), noise=not marginal)[np.ix_(places, places)]


def _order(visible: int, hidden: int) -> np.ndarray:
    """Where h v^T, h and v are among the products of (h, 1) and (v, 1)."""
    table = np.arange((hidden + 1) * (visible + 1)).reshape(hidden + 1, visible + 1)
    return np.concatenate([table[:-1, :-1].ravel(), table[:-1, -1], table[-1, :-1]])


def _enumerated(model: Boltzmann, *, noise: bool) -> Float[Array, "product product"]:
    """The covariance of all products of (h, 1) and (v, 1), summed over hidden states."""
    visible, hidden = model.sizes
    size = (visible + 1) * (hidden + 1)
    bits = min(hidden, max(0, (_PORTION // size).bit_length() - 1))
    log_z = exact_log_z(model)
    starts = jnp.arange(2 ** (hidden - bits), dtype=jnp.uint32) << bits

    def products(start: Array) -> tuple[Given, Float[Array, "product state"]]:
        found = _given(model, start + jnp.arange(2**bits, dtype=jnp.uint32), log_z)
        return found, (found.hidden[:, None] * found.means).reshape(size, -1)

    def add_mean(total: Array, start: Array) -> tuple[Array, None]:
        found, terms = products(start)
        return total + terms @ found.chances, None

    nothing = jnp.zeros(size, log_z.dtype)
    mean = jax.lax.scan(add_mean, nothing, starts)[0]

    def add(totals: tuple[Array, Array], start: Array) -> tuple[tuple[Array, Array], None]:
        found, terms = products(start)
        apart = terms - mean[:, None]
        spread = jnp.einsum("js,ks,is->jki", found.hidden * found.chances, found.hidden, found.variances)
        return (totals[0] + (apart * found.chances) @ apart.T, totals[1] + spread), None

    zeros = jnp.zeros((size, size), log_z.dtype), jnp.zeros((hidden + 1, hidden + 1, visible), log_z.dtype)
    (between, within), _ = jax.lax.scan(add, zeros, starts)
    return between + _placed_within(within, size) if noise else between


def _placed_within(within: Float[Array, "j k i"], size: int) -> Float[Array, "product product"]:
    """Cov(T | h): only products of the same visible unit have any."""
    units, number = within.shape[2], within.shape[0]
    own = jnp.arange(units)
    whole = jnp.zeros((number, units + 1, number, units + 1), within.dtype)
    filled = whole.at[:, own, :, own].set(within.transpose(2, 0, 1))
    return filled.reshape(size, size)


def _given(model: Boltzmann, numbers: Array, log_z: Array) -> Given:
    hidden = jax.vmap(lambda number: state_numbered(model, number, model.sizes[1]), out_axes=1)(numbers)
    inputs = visible_inputs(model, hidden)
    one = jnp.ones_like(hidden[:1])
    return Given(
        jnp.concatenate([hidden, one]),
        jnp.concatenate([model.visible_units.mean(inputs), one]),
        model.visible_units.variance(inputs),
        jnp.exp(hidden_marginal(model, hidden) - log_z),
    )
