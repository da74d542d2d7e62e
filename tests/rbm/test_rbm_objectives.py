"""Gradients against sums over all states, centering, and chains against the machine's own distribution."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from boltzmann_cases import CODINGS, Enumerated, all_states, made
from jax.flatten_util import ravel_pytree

from natgrad.core import Estimate
from natgrad.layers import generator
from natgrad.models.rbm import machine, negative, objectives
from natgrad.models.rbm.gibbs import Drawn

codings = pytest.mark.parametrize("coding", list(CODINGS))


def flat(model):
    return np.asarray(ravel_pytree(model)[0])


def naive_gradient(model, coding, rows):
    """E_model[T] - E_data[T], with every hidden state of every row weighted by p(h | v)."""
    every = Enumerated(model, coding)
    weights = np.zeros_like(every.p)
    for row in np.asarray(rows).T:
        same = (every.v == row[:, None]).all(axis=0)
        weights += np.where(same, every.p, 0) / every.p[same].sum() / rows.shape[1]
    return every.mean() - every.features() @ weights


@pytest.mark.parametrize(("coding", "centering"), [("binary", False), ("signed", True)])
@pytest.mark.few(1)
def test_the_enumerated_gradient(coding, centering):
    model, rows = made(coding), jnp.asarray(all_states(4, coding)[:, ::3])
    objective = objectives.enumerated_likelihood(centering=centering)
    carry = objective.init(generator.key(0), model, rows)
    found, after = jax.jit(objective.estimate)(generator.key(1), carry, model, rows)
    expected = naive_gradient(model, coding, rows)
    np.testing.assert_allclose(flat(found.gradient), expected, atol=1e-10)
    value, slope = jax.jit(jax.value_and_grad(objective.revalue))(model, found.samples)
    np.testing.assert_allclose(flat(slope), expected, atol=1e-10)
    np.testing.assert_allclose(value, found.value, atol=1e-12)
    assert bool(after.offsets.visible.any()) == centering


@codings
@pytest.mark.few(1)
def test_a_centered_step_is_the_plain_step_of_the_centered_chart(coding):
    model, rows = made(coding), jnp.asarray(all_states(4, coding)[:, ::3])
    objective = objectives.enumerated_likelihood(centering=True)
    carry = objective.init(generator.key(0), model, rows)
    found, _ = jax.jit(objective.estimate)(generator.key(1), carry, model, rows)
    offsets = found.samples.offsets

    def loss(chart):
        return objective.revalue(machine.from_centered(chart, offsets), found.samples)

    there = model.with_arrays(
        model.weight,
        model.hidden_bias + model.weight @ offsets.visible,
        model.visible_bias + offsets.hidden @ model.weight,
    )
    moved = jax.tree.map(lambda at, slope: at - 0.1 * slope, there, jax.jit(jax.grad(loss))(there))
    direction = objectives.centered_steepest()
    step = direction.apply(generator.key(2), (), model, found)
    taken = jax.tree.map(lambda at, slope: at - 0.1 * slope, model, step.vector)
    np.testing.assert_allclose(flat(machine.from_centered(moved, offsets)), flat(taken), atol=1e-10)


NEGATIVES = {
    "cd": negative.contrastive_divergence(2),
    "pcd": negative.persistent(6, 2),
    "tempering": negative.tempered(6, 2, 3),
}


@pytest.mark.parametrize(
    ("coding", "name"),
    [("binary", "pcd"), ("signed", "cd"), ("signed", "tempering")],
)
@pytest.mark.few(1)
def test_a_sampled_gradient_is_that_of_its_samples(coding, name):
    model, rows = made(coding), jnp.asarray(all_states(4, coding)[:, ::3])
    objective = objectives.sampled_likelihood(NEGATIVES[name])
    carry = objective.init(generator.key(0), model, rows)
    found, after = jax.jit(objective.estimate)(generator.key(1), carry, model, rows)
    slope = jax.jit(jax.grad(objective.revalue))(model, found.samples)
    np.testing.assert_allclose(flat(found.gradient), flat(slope), atol=1e-10)
    assert isinstance(found, Estimate)
    assert jax.tree.structure(carry) == jax.tree.structure(after)
    chains = found.samples.chains
    inputs = machine.hidden_inputs(model, chains.visible)
    np.testing.assert_allclose(chains.inputs, inputs, atol=1e-12)
    assert set(np.unique(chains.hidden)) <= {CODINGS[coding].low, 1.0}


@codings
@pytest.mark.few(1)
@pytest.mark.slow
def test_tempered_chains_have_the_machine_as_their_law(coding):
    model, number = made(coding, scale=0.6), 4000
    every = Enumerated(model, coding)
    phase = negative.tempered(number, 10, 4)
    carry = phase.init(generator.key(0), model)
    drawn, carry, numbers = jax.jit(phase.draw)(generator.key(1), carry, model, jnp.zeros((3, 1)))
    found = flat(machine.statistics(model, drawn.visible, drawn.hidden))
    error = np.sqrt(np.diag(every.fisher()) / number)
    assert (np.abs(found - every.mean()) < 5 * error).all()
    assert 0.3 < float(numbers["swap_rate_least"]) <= float(numbers["swap_rate"]) < 1
    first = CODINGS[coding].on(np.asarray(carry[:, 0]))
    assert (np.abs(first.mean(axis=1) - 0.5) < 5 * 0.5 / number**0.5).all()  # at zero, fair coins


@pytest.mark.slow
def test_tempering_joins_modes_that_plain_chains_do_not_leave():
    weight = jnp.full((3, 8), 1.0)
    model = made("signed", (8, 3)).with_arrays(weight, jnp.zeros(3), jnp.zeros(8))
    shares = {}
    for name, phase in (("pcd", negative.persistent(200, 60)), ("tempering", negative.tempered(200, 60, 6))):
        start = jax.tree.map(jnp.ones_like, phase.init(generator.key(0), model))
        drawn, _, _ = jax.jit(phase.draw)(generator.key(1), start, model, jnp.zeros((3, 1)))
        shares[name] = float((drawn.visible.sum(axis=0) > 0).mean())
    assert shares["pcd"] == 1.0
    assert shares["tempering"] < 0.9


@pytest.mark.parametrize("where", ["visible", "hidden"])
def test_a_gradient_that_is_not_finite_shows_it_in_its_biases(where):
    """Steps are checked there only; centering turns weights and biases together."""
    model, rows = made("binary"), jnp.asarray(all_states(4, "binary")[:, ::3])
    inputs = machine.hidden_inputs(model, rows)
    means = model.hidden_units.mean(inputs)
    whole = objectives.both_phases(model, Drawn(rows, inputs, means), rows, means)
    spoiled = dataclasses.replace(whole, **{where: getattr(whole, where).at[1, 2].set(jnp.inf)}).whole()
    offsets = machine.Offsets(rows.mean(axis=1), means.mean(axis=1))
    turned = machine.from_centered(machine.to_centered(spoiled, offsets), offsets)
    for gradient in (spoiled, turned):
        assert not np.isfinite(np.concatenate(machine.both_biases(gradient))).all()
    assert np.isfinite(np.concatenate(machine.both_biases(whole.whole()))).all()
