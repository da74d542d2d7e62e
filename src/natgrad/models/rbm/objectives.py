"""The likelihood of a machine as an objective: the difference of two phases.

    d(-log p) = E_model[T] - E_data[T],     T = (h v^T, h, v)                                  [nbm eq. 1]

The data's expectation takes the hidden units' means; the model's is enumerated, or estimated from chains
(their visible states, and the means of hidden units given those). Where there are chains, the value is a
cheap stand-in, not the loss itself (`natgrad.models.rbm.pseudo`); `revalue` is the difference of free
energies, which has the right gradient.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad import tree
from natgrad.core import Direction, Estimate, Model, Objective, Step
from natgrad.models.rbm.gibbs import Drawn
from natgrad.models.rbm.machine import (
    Boltzmann,
    Offsets,
    from_centered,
    hidden_inputs,
    negative_free,
    negative_free_energy,
    statistics,
    to_centered,
)
from natgrad.models.rbm.negative import Negative
from natgrad.models.rbm.partition import exact_log_z
from natgrad.models.rbm.pseudo import proxy
from natgrad.models.rbm.statistic_sum import StatisticSum
from natgrad.models.rbm.units import UnitRows

MEMORY = 0.99  # of the averages that centering takes from the statistics


class Contrast(NamedTuple):
    """Both phases of a step: data rows, samples of the machine (None: enumerated), and the offsets."""

    rows: UnitRows
    chains: Drawn | None
    offsets: Offsets


class Carried(NamedTuple):
    """What is kept for the next step: chains, and the averages that centering takes off."""

    chains: Any
    offsets: Offsets


def enumerated_likelihood(*, centering: bool = False) -> Objective:
    """The exact loss and its exact gradient, by a sum over all states of the smaller layer."""

    def init(key: PRNGKeyArray, model: Boltzmann, batch: UnitRows) -> Carried:
        del key, batch
        return Carried((), _first(model, centering))

    def estimate(
        key: PRNGKeyArray, carry: Carried, model: Boltzmann, rows: UnitRows
    ) -> tuple[Estimate, Carried]:
        del key
        inputs = hidden_inputs(model, rows)
        means = model.hidden_units.mean(inputs)
        log_z, expected = jax.value_and_grad(exact_log_z)(model)
        offsets = _renewed(carry.offsets, rows, means, centering)
        gradient = tree.subtract(expected, statistics(model, rows, means))
        value = log_z - negative_free(model, rows, inputs).mean()
        return Estimate(value, gradient, Contrast(rows, None, offsets), {}), Carried((), offsets)

    def revalue(model: Boltzmann, drawn: Contrast) -> Float[Array, ""]:
        return exact_log_z(model) - negative_free_energy(model, drawn.rows).mean()

    return Objective(init, estimate, revalue)


def sampled_likelihood(negative: Negative, *, centering: bool = False, factored: bool = False) -> Objective:
    """The gradient from samples of a negative phase; where `factored`, as a sum over samples."""

    def init(key: PRNGKeyArray, model: Boltzmann, batch: UnitRows) -> Carried:
        del batch
        return Carried(negative.init(key, model), _first(model, centering))

    def estimate(
        key: PRNGKeyArray, carry: Carried, model: Boltzmann, rows: UnitRows
    ) -> tuple[Estimate, Carried]:
        key_negative, key_value = jax.random.split(key)
        inputs = hidden_inputs(model, rows)
        means = model.hidden_units.mean(inputs)
        drawn, chains, numbers = negative.draw(key_negative, carry.chains, model, inputs)
        gradient = both_phases(model, drawn, rows, means)
        offsets = _renewed(carry.offsets, rows, means, centering)
        value = -proxy(key_value, model, rows, inputs).mean()
        slope = gradient if factored else gradient.whole()
        found = Estimate(value, slope, Contrast(rows, drawn, offsets), numbers)
        return found, Carried(chains, offsets)

    return Objective(init, estimate, free_energy_gap)


def both_phases(model: Boltzmann, drawn: Drawn, rows: UnitRows, means: UnitRows) -> StatisticSum:
    """The mean statistics of chains less those of data rows; of hidden units their means."""
    ours = model.hidden_units.mean(drawn.inputs) / drawn.visible.shape[1]
    theirs = -means / rows.shape[1]
    weights = [jnp.full(of.shape[1], sign / of.shape[1], of.dtype) for of, sign in ((ours, 1), (means, -1))]
    return StatisticSum(
        jnp.concatenate([drawn.visible, rows], axis=1),
        jnp.concatenate([ours, theirs], axis=1),
        jnp.concatenate(weights),
        model.visible_units,
        model.hidden_units,
    )


def free_energy_gap(model: Boltzmann, drawn: Contrast) -> Float[Array, ""]:
    """The free energy of the data less that of the chains: its gradient is the two phases' difference."""
    assert drawn.chains is not None
    free = negative_free_energy(model, drawn.chains.visible).mean()
    return free - negative_free_energy(model, drawn.rows).mean()


def centered_steepest() -> Direction:
    """The gradient of the centered chart, as a direction of the machine's own parameters [melchior2016]."""

    def init(key: PRNGKeyArray, model: Model, estimate: Estimate) -> tuple[()]:
        del key, model, estimate
        return ()

    def apply(key: PRNGKeyArray, carry: tuple[()], model: Model, estimate: Estimate) -> Step:
        del key, model
        offsets = estimate.samples.offsets
        return Step(from_centered(to_centered(estimate.gradient, offsets), offsets), carry)

    return Direction(init, apply)


def _first(model: Boltzmann, centering: bool) -> Offsets:
    """The means that units have by their biases alone, or nothing."""
    if not centering:
        return Offsets(jnp.zeros_like(model.visible_bias), jnp.zeros_like(model.hidden_bias))
    below = model.visible_units.mean(model.visible_bias[:, None])[:, 0]
    return Offsets(below, model.hidden_units.mean(model.hidden_bias[:, None])[:, 0])


def _renewed(offsets: Offsets, rows: UnitRows, means: UnitRows, centering: bool) -> Offsets:
    """The averages with this step's data."""
    if not centering:
        return offsets
    return tree.blend(MEMORY, offsets, Offsets(rows.mean(axis=1), means.mean(axis=1)))
