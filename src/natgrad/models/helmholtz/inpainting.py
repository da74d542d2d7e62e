"""Completions: the hidden part of an image drawn from p(x_hidden | x_known).

A chain over (x_hidden, h) takes two moves in turn, each of which leaves p(x_hidden, h | x_known) as it is:

    h        S new states are drawn from q(h | x); one of them or the present state is kept, with
             probability proportional to its importance weight p(x, h) / q(h | x)
    x_hidden ~ p(x_hidden | h_1), exactly, since visible units are independent given the layer above

The first is importance resampling with the present state among the candidates, which makes it exact for
any S [pmcmc]. Chains start from dreams, resampled by p(x_known | h_1). What remains is the bias of a
finite number of steps: `moved` tells how often a chain left its hidden state, and is to be well above zero.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from natgrad.layers import bernoulli
from natgrad.layers.bernoulli import Values
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.tree import map_layers

_DREAMS = 1000  # candidates for the start of every chain
CHAINS = 256  # chains that run side by side

_Visible = Float[Array, "visible row"]
Mask = Bool[Array, "visible row"]


class Chain(NamedTuple):
    """Where every row's chain is: its visible values, its hidden layers, pixel means, moves so far."""

    visible: _Visible
    hidden: tuple[Values, ...]
    means: _Visible
    moves: Int[Array, " row"]


def complete(
    key: PRNGKeyArray, model: Helmholtz, visible: _Visible, hide: Mask, *, steps: int, samples: int
) -> Chain:
    """One completion of every row after so many steps; `hide` is true where a pixel is to be drawn."""
    total = visible.shape[1]
    size = min(total, CHAINS)
    parts = []
    for first in range(0, total, size):
        rows = np.arange(first, first + size) % total  # the last portion is filled up, then cut
        key_part = jax.random.fold_in(key, first)
        chain = _run(key_part, model, visible[:, rows], hide[:, rows], steps, samples=samples)
        parts.append(jax.tree.map(np.asarray, chain))
    return jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=-1)[..., :total], *parts)


@partial(jax.jit, static_argnames="samples")
def _run(
    key: PRNGKeyArray, model: Helmholtz, visible: _Visible, hide: Mask, steps: Array, *, samples: int
) -> Chain:
    key_start, key_steps = jax.random.split(key)

    def body(number: Array, chain: Chain) -> Chain:
        return advance(jax.random.fold_in(key_steps, number), model, chain, hide, samples=samples)

    return jax.lax.fori_loop(0, steps, body, start(key_start, model, visible, hide))


def start(key: PRNGKeyArray, model: Helmholtz, visible: _Visible, hide: Mask, dreams: int = _DREAMS) -> Chain:
    """Hidden states of dreams, resampled for every row by how well they explain its known pixels."""
    key_dream, key_pick, key_pixels = jax.random.split(key, 3)
    dreamt = helmholtz.dream(key_dream, model, 1, dreams)  # ~ p(x, h)
    logit = dreamt.generation[0][:, 0]
    known = jnp.where(hide, 0, model.coding.on(visible))
    seen = (~hide).astype(logit.dtype)
    score = logit.T @ known - jax.nn.softplus(logit).T @ seen  # log p(x_known | h_1), [dream, row]
    pick = jax.random.categorical(key_pick, score, axis=0)
    hidden = tuple(value[:, 0, pick][:, :, None] for value in dreamt.values[1:])
    means = bernoulli.probability(logit[:, pick])
    moves = jnp.zeros(visible.shape[1:], jnp.int32)
    return Chain(_fill(key_pixels, model, means, visible, hide), hidden, means, moves)


def advance(key: PRNGKeyArray, model: Helmholtz, chain: Chain, hide: Mask, *, samples: int) -> Chain:
    """One step of every chain: hidden states by resampling, then hidden pixels given them."""
    key_wake, key_pick, key_pixels = jax.random.split(key, 3)
    present = helmholtz.evaluated(model, (chain.visible[:, :, None], *chain.hidden))
    fresh = helmholtz.wake(key_wake, model, chain.visible, samples)  # ~ q(h | x)
    log_weights = jnp.concatenate([helmholtz.log_weights(model, drawn) for drawn in (present, fresh)], axis=1)
    pick = jax.random.categorical(key_pick, log_weights, axis=1)  # the present state is number 0

    def kept(now: Values, new: Values) -> Values:
        return jnp.take_along_axis(jnp.concatenate([now, new], axis=2), pick[None, :, None], axis=2)

    hidden = map_layers(kept, chain.hidden, fresh.values[1:])
    means = bernoulli.probability(bernoulli.logits(model.generation[0], hidden[0])[..., 0])
    visible = _fill(key_pixels, model, means, chain.visible, hide)
    return Chain(visible, hidden, means, chain.moves + (pick > 0).astype(jnp.int32))


def _fill(key: PRNGKeyArray, model: Helmholtz, means: _Visible, visible: _Visible, hide: Mask) -> _Visible:
    on = jax.random.uniform(key, means.shape, means.dtype) < means  # ~ p(x | h_1)
    return jnp.where(hide, model.coding.value(on, means.dtype), visible)
