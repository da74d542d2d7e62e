"""Completions: the hidden part of a row drawn from p(x_hidden | x_known).

A chain over (x_hidden, z) takes two moves in turn, each of which leaves p(x_hidden, z | x_known) as it is:

    z        S new vectors are drawn from q(z | x); one of them or the present one is kept, with
             probability proportional to its importance weight p(x, z) / q(z | x)
    x_hidden ~ p(x_hidden | z), exactly, since visible units are independent given z

The first is importance resampling with the present vector among the candidates, which makes it exact for
any S [pmcmc]. Chains start from vectors of the prior, resampled by p(x_known | z). What remains is the bias
of a finite number of steps: `moved` tells how often a chain left its vector, and is to be well above zero.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from natgrad.evaluate.weights import in_portions
from natgrad.models.vae.machine import (
    Rows,
    Variational,
    generation_outputs,
    latent_noise,
    log_prior,
    log_visible,
    recognized,
    visible_output,
)

_STARTS = 200  # candidates for the start of every chain
_AT_ONCE = 256  # chains that run side by side

HiddenPixels = Bool[Array, "row visible"]


class CompletionChain(NamedTuple):
    """Where every row's chain is: its visible values, its latent vector, visible means, moves so far."""

    visible: Rows
    latent: Float[Array, "row latent"]
    means: Rows
    moves: Int[Array, " row"]


def completed(
    key: PRNGKeyArray, model: Variational, rows: Rows, hide: HiddenPixels, *, steps: int, samples: int
) -> CompletionChain:
    """One completion of every row after so many steps; `hide` is true where a value is to be drawn."""

    def portion(own: PRNGKeyArray, both: Array) -> CompletionChain:
        known, hidden = jnp.split(both, 2, axis=1)
        return _run(own, model, known, hidden == 1, steps, samples=samples)

    both = jnp.concatenate([rows, hide.astype(rows.dtype)], axis=1)
    return in_portions(portion, key, both, min(len(rows), _AT_ONCE))


@partial(jax.jit, static_argnames="samples")
def _run(
    key: PRNGKeyArray, model: Variational, rows: Rows, hide: HiddenPixels, steps: Array, *, samples: int
) -> CompletionChain:
    key_start, key_steps = jax.random.split(key)

    def body(number: Array, chain: CompletionChain) -> CompletionChain:
        return moved(jax.random.fold_in(key_steps, number), model, chain, hide, samples=samples)

    return jax.lax.fori_loop(0, steps, body, begun(key_start, model, rows, hide))


def begun(
    key: PRNGKeyArray, model: Variational, rows: Rows, hide: HiddenPixels, candidates: int = _STARTS
) -> CompletionChain:
    """Latent vectors of the prior, resampled for every row by how well they explain what is known of it."""
    key_latent, key_pick, key_values = jax.random.split(key, 3)
    latent = jax.random.normal(key_latent, (candidates, model.latent), rows.dtype)  # ~ p(z)
    outputs, log_prob = generation_outputs(model, latent), visible_output(model).log_prob

    def score(pair: tuple[Array, Array]) -> Float[Array, " candidate"]:
        row, hidden = pair
        each = log_prob(outputs.reshape(-1, 1), jnp.tile(row, candidates)[:, None])  # of every visible unit
        return jnp.where(hidden, 0, each.reshape(outputs.shape)).sum(axis=1)  # log p(x_known | z)

    picked = latent[jax.random.categorical(key_pick, jax.lax.map(score, (rows, hide)), axis=1)]
    visible, means = _filled(key_values, model, picked, rows, hide)
    return CompletionChain(visible, picked, means, jnp.zeros(len(rows), jnp.int32))


def moved(
    key: PRNGKeyArray, model: Variational, chain: CompletionChain, hide: HiddenPixels, *, samples: int
) -> CompletionChain:
    """One step of every chain: its latent vector by resampling, then hidden values given it."""
    key_noise, key_pick, key_values = jax.random.split(key, 3)
    posterior = recognized(model, chain.visible)
    fresh = posterior.drawn(latent_noise(key_noise, model, chain.visible, samples))  # ~ q(z | x)
    latent = jnp.concatenate([chain.latent[:, None], fresh], axis=1)
    weights = log_visible(model, chain.visible, latent) + log_prior(latent) - posterior.log_prob(latent)
    pick = jax.random.categorical(key_pick, weights, axis=1)  # the present vector is number 0
    kept = jnp.take_along_axis(latent, pick[:, None, None], axis=1)[:, 0]
    visible, means = _filled(key_values, model, kept, chain.visible, hide)
    return CompletionChain(visible, kept, means, chain.moves + (pick > 0).astype(jnp.int32))


def _filled(
    key: PRNGKeyArray, model: Variational, latent: Array, rows: Rows, hide: HiddenPixels
) -> tuple[Rows, Rows]:
    """Rows whose hidden values are drawn given latent vectors, and the means of all values given these."""
    outputs, sample = generation_outputs(model, latent), visible_output(model).sample
    assert sample is not None
    drawn = sample(key, outputs)  # ~ p(x | z)
    return jnp.where(hide, drawn, rows), outputs if model.gaussian else jax.nn.sigmoid(outputs)
