"""The two phases that every wake-sleep method is made of.

Wake: hidden states drawn by recognition from data teach generation, and with importance weights
also recognition. Sleep: dreams drawn by generation teach recognition. The methods differ only in
the weights of the wake samples and in the shares of the two lessons for recognition:

    method                  weights of the wake samples      q-wake share    q-sleep share
    wake-sleep              1/S                              0               1
    reweighted wake-sleep   w / sum w            [nrws eq. 9]     1/2             1/2
    bidirectional           sqrt w / sum sqrt w              1               0

All gradients are means over data rows and dreams, so that a learning rate does not depend on the
batch size or on the number of samples.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad import tree
from natgrad.core import Estimate, Objective, stateless
from natgrad.devices import mean_over_rows
from natgrad.layers import bernoulli
from natgrad.layers.bernoulli import Coding, Layer, Values, flat, repeated, stored
from natgrad.models.helmholtz import machine
from natgrad.models.helmholtz.machine import Helmholtz, Pass
from natgrad.tree import map_layers

Weights = Float[Array, "row sample"]


class Phases(NamedTuple):
    """The draws of one step. `weights` are those of the wake samples, summing to one for every row."""

    wake: Pass
    weights: Weights
    dreams: Pass


class Shares(NamedTuple):
    """How much of each lesson recognition takes, and the baseline of q-wake's weights (times 1/S)."""

    wake: float
    sleep: float
    baseline: float = 1.0


def two_phases(samples: int, weigh: Callable[[Weights], Weights], shares: Shares) -> Objective:
    """The objective of a wake-sleep method; a batch is an array [visible, row] in the model's coding.

    Dreams that nothing uses (no sleep, no metric over dreams) are dead code once compiled.
    """

    def estimate(key: PRNGKeyArray, model: Helmholtz, batch: Float[Array, "visible row"]) -> Estimate:
        key_wake, key_dream = jax.random.split(key)
        wake = machine.wake(key_wake, model, batch, samples, reuse=True)
        dreams = machine.dream(key_dream, model, batch.shape[1], samples)
        log_weights = machine.log_weights(model, wake, reuse=True)
        drawn = Phases(wake, weigh(log_weights), dreams)

        def means(model: Helmholtz, rows: tuple[Phases, Weights]) -> tuple[Array, Helmholtz, Array]:
            drawn, log_weights = rows
            value = -jnp.mean(jax.nn.logsumexp(log_weights, axis=1) - jnp.log(samples))
            effective = jnp.mean(1 / jnp.sum(drawn.weights**2, axis=1))
            return value, phase_gradient(model, drawn, shares), effective

        value, gradient, effective = mean_over_rows(means, model, (drawn, log_weights), batch.shape[1])
        return Estimate(value, gradient, drawn, {"effective_samples": effective})

    return stateless(estimate, lambda model, drawn: loss(model, drawn, shares))


def sleep_only(samples: int, share: float) -> Objective:
    """The sleep phase alone: recognition learns from dreams, generation rests."""

    def estimate(key: PRNGKeyArray, model: Helmholtz, batch: Float[Array, "visible row"]) -> Estimate:
        dreams = machine.dream(key, model, batch.shape[1], samples)
        even = jnp.full((batch.shape[1], samples), 1 / samples, batch.dtype)

        def means(model: Helmholtz, rows: tuple[Pass, Weights]) -> tuple[Array, tuple[Layer, ...]]:
            dreams, even = rows
            taught = _recognition(model, dreams, share * even / len(even))  # [nrws eq. 11]
            return -jnp.mean(machine.log_recognition(model, dreams)), taught

        value, taught = mean_over_rows(means, model, (dreams, even), batch.shape[1])
        rest = tree.zeros((model.prior, model.generation))
        return Estimate(value, Helmholtz(*rest, taught, model.coding), Phases(dreams, even, dreams), {})

    def revalue(model: Helmholtz, drawn: Phases) -> Float[Array, ""]:
        again = machine.evaluated(model, drawn.dreams.values)
        return -share * jnp.mean(machine.log_recognition(model, again))

    return stateless(estimate, revalue)


def phase_gradient(model: Helmholtz, drawn: Phases, shares: Shares) -> Helmholtz:
    """The loss gradient of a whole machine from the draws of both phases."""
    rows, samples = drawn.weights.shape
    prior, generation = _generation(model, drawn.wake, stored(drawn.weights / rows))
    dreamt = shares.sleep / (samples * rows)
    recognition = _recognition(model, drawn.dreams, jnp.asarray(dreamt))  # [nrws eq. 11]
    if shares.wake:
        weights = stored(shares.wake * (drawn.weights - shares.baseline / samples) / rows)
        woken = _recognition(model, drawn.wake, weights)  # [nrws eq. 10]
        recognition = jax.tree.map(jnp.add, woken, recognition) if shares.sleep else woken
    return Helmholtz(prior, generation, recognition, model.coding)


def loss(model: Helmholtz, drawn: Phases, shares: Shares) -> Float[Array, ""]:
    """The loss whose gradient is `phase_gradient`, for draws and weights that stay as they are."""
    rows, samples = drawn.weights.shape
    wake, dreams = (machine.evaluated(model, part.values) for part in (drawn.wake, drawn.dreams))
    value = -(drawn.weights * machine.log_joint(model, wake)).sum() / rows  # [nrws eq. 8]
    woken = shares.wake * (drawn.weights - shares.baseline / samples)
    value = value - (woken * machine.log_recognition(model, wake)).sum() / rows  # [nrws eq. 10]
    return value - shares.sleep * jnp.mean(machine.log_recognition(model, dreams))  # [nrws eq. 11]


def _generation(model: Helmholtz, drawn: Pass, weights: Weights) -> tuple[Array, tuple[Layer, ...]]:
    residuals = map_layers(_residual(model.coding, weights), drawn.generation, drawn.values)  # [nrws eq. 8]
    layers = map_layers(bernoulli.gradient, drawn.values[1:], residuals[:-1])
    return residuals[-1].sum(axis=(1, 2)), layers


def _recognition(model: Helmholtz, drawn: Pass, weights: Array) -> tuple[Layer, ...]:
    residuals = map_layers(_residual(model.coding, weights), drawn.recognition, drawn.values[1:])
    return map_layers(bernoulli.gradient, drawn.values[:-1], residuals)


def _residual(coding: Coding, weights: Array) -> Callable[[Values, Values], Values]:
    """The gradient of -log p with respect to a logit, sigmoid(a) - y in either coding, times weights."""

    def residual(logit: Values, value: Values) -> Values:
        units, rows, samples = jnp.broadcast_shapes(logit.shape, value.shape)
        chance = flat(repeated(bernoulli.probability(logit), samples))
        wrong = chance - flat(repeated(coding.on(value), samples))
        return (weights.reshape(-1) * wrong).reshape(units, rows, samples)

    return residual


def wake_sleep(samples: int = 10, *, sleep_share: float = 1.0) -> Objective:
    """Generation learns from recognition's samples, recognition from dreams."""
    return two_phases(samples, uniform, Shares(wake=0.0, sleep=sleep_share))


def reweighted(
    samples: int = 10, *, wake_share: float = 0.5, sleep_share: float = 0.5, baseline: bool = True
) -> Objective:
    """Wake samples weighted by importance; recognition learns half from them, half from dreams [nrws eq. 33].

    The baseline takes 1/S from each q-wake weight. The score's mean is zero, so this changes no
    expectation; it lowers the variance, and with one sample it makes q-wake vanish.
    """
    return two_phases(samples, normalized, Shares(wake_share, sleep_share, float(baseline)))


def bidirectional(samples: int = 10, *, baseline: bool = True) -> Objective:
    """Both networks learn from wake samples weighted by the square roots of the importance weights."""
    return two_phases(samples, half_exponent, Shares(wake=1.0, sleep=0.0, baseline=float(baseline)))


def uniform(log_weights: Weights) -> Weights:
    """The same weight for every sample of a row."""
    return jnp.full_like(log_weights, 1 / log_weights.shape[1])


def normalized(log_weights: Weights) -> Weights:
    """Importance weights that sum to one over the samples of each row [nrws eq. 9]."""
    return jax.nn.softmax(log_weights, axis=1)


def half_exponent(log_weights: Weights) -> Weights:
    """Weights proportional to sqrt(p(x, h) / q(h | x)), summing to one over the samples of each row."""
    return jax.nn.softmax(log_weights / 2, axis=1)
