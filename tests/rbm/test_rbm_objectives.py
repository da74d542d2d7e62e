"""Gradients against sums over all states, centering, and chains against the machine's own law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from boltzmann_cases import CODINGS, Enumerated, all_states, made
from jax.flatten_util import ravel_pytree

from natgrad.core import Estimate
from natgrad.models.rbm import machine, negative, objectives
from natgrad.models.rbm.partition import exact_log_z

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


@codings
@pytest.mark.parametrize("centering", [False, True])
def test_the_enumerated_gradient(coding, centering):
    model, rows = made(coding), jnp.asarray(all_states(4, coding)[:, ::3])
    objective = objectives.enumerated_likelihood(centering=centering)
    carry = objective.init(jax.random.key(0), model, rows)
    found, after = jax.jit(objective.estimate)(jax.random.key(1), carry, model, rows)
    expected = naive_gradient(model, coding, rows)
    np.testing.assert_allclose(flat(found.gradient), expected, atol=1e-10)
    slope = jax.grad(objective.revalue)(model, found.samples)
    np.testing.assert_allclose(flat(slope), expected, atol=1e-10)
    np.testing.assert_allclose(objective.revalue(model, found.samples), found.value, atol=1e-12)
    assert bool(after.offsets.visible.any()) == centering


@codings
def test_a_centered_step_is_the_plain_step_of_the_centered_chart(coding):
    model, rows = made(coding), jnp.asarray(all_states(4, coding)[:, ::3])
    objective = objectives.enumerated_likelihood(centering=True)
    found, _ = objective.estimate(
        jax.random.key(1), objective.init(jax.random.key(0), model, rows), model, rows
    )
    offsets = found.samples.offsets

    def loss(chart):
        return objective.revalue(machine.from_centered(chart, offsets), found.samples)

    there = model.with_arrays(
        model.weight,
        model.hidden_bias + model.weight @ offsets.visible,
        model.visible_bias + offsets.hidden @ model.weight,
    )
    moved = jax.tree.map(lambda at, slope: at - 0.1 * slope, there, jax.grad(loss)(there))
    direction = objectives.centered_steepest()
    step = direction.apply(jax.random.key(2), (), model, found)
    taken = jax.tree.map(lambda at, slope: at - 0.1 * slope, model, step.vector)
    np.testing.assert_allclose(flat(machine.from_centered(moved, offsets)), flat(taken), atol=1e-10)


NEGATIVES = {
    "cd": negative.contrastive_divergence(2),
    "pcd": negative.persistent(6, 2),
    "tempering": negative.tempered(6, 2, 3),
}


@codings
@pytest.mark.parametrize("name", NEGATIVES)
def test_a_sampled_gradient_is_that_of_its_samples(coding, name):
    model, rows = made(coding), jnp.asarray(all_states(4, coding)[:, ::3])
    objective = objectives.sampled_likelihood(NEGATIVES[name])
    carry = objective.init(jax.random.key(0), model, rows)
    found, after = jax.jit(objective.estimate)(jax.random.key(1), carry, model, rows)
    slope = jax.grad(objective.revalue)(model, found.samples)
    np.testing.assert_allclose(flat(found.gradient), flat(slope), atol=1e-10)
    assert isinstance(found, Estimate)
    assert jax.tree.structure(carry) == jax.tree.structure(after)
    chains = found.samples.chains
    inputs = machine.hidden_inputs(model, chains.visible)
    np.testing.assert_allclose(chains.inputs, inputs, atol=1e-12)
    assert set(np.unique(chains.hidden)) <= {CODINGS[coding].low, 1.0}


@codings
@pytest.mark.parametrize("name", ["pcd", "tempering"])
def test_chains_have_the_machine_as_their_law(coding, name):
    model, number = made(coding, scale=0.6), 4000
    every = Enumerated(model, coding)
    make = {"pcd": negative.persistent, "tempering": lambda n, k: negative.tempered(n, k, 4)}[name]
    phase = make(number, 10)
    carry = phase.init(jax.random.key(0), model)
    drawn, carry, numbers = jax.jit(phase.draw)(jax.random.key(1), carry, model, jnp.zeros((3, 1)))
    found = flat(machine.statistics(model, drawn.visible, drawn.hidden))
    error = np.sqrt(np.diag(every.fisher()) / number)
    assert (np.abs(found - every.mean()) < 5 * error).all()
    if name == "tempering":
        assert 0.3 < float(numbers["swap_rate_least"]) <= float(numbers["swap_rate"]) < 1
        first = np.asarray(carry[:, 0])  # at inverse temperature zero hidden units are fair coins
        middle = (CODINGS[coding].low + 1) / 2
        assert (np.abs(first.mean(axis=1) - middle) < 5 * 0.5 * (1 - CODINGS[coding].low) / number**0.5).all()


def test_tempering_joins_modes_that_plain_chains_do_not_leave():
    weight = jnp.full((3, 8), 1.0)
    model = made("signed", (8, 3)).with_arrays(weight, jnp.zeros(3), jnp.zeros(8))
    shares = {}
    for name, phase in (("pcd", negative.persistent(200, 60)), ("tempering", negative.tempered(200, 60, 6))):
        start = jax.tree.map(jnp.ones_like, phase.init(jax.random.key(0), model))
        drawn, _, _ = jax.jit(phase.draw)(jax.random.key(1), start, model, jnp.zeros((3, 1)))
        shares[name] = float((drawn.visible.sum(axis=0) > 0).mean())
    assert shares["pcd"] == 1.0
    assert abs(shares["tempering"] - 0.5) < 0.2


def test_an_exact_training_reaches_the_law_of_the_data():
    model, rows = made("binary", (3, 2), scale=0.1), jnp.array([[0.0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 0, 0]])
    objective = objectives.enumerated_likelihood()
    carry = objective.init(jax.random.key(0), model, rows)

    @jax.jit
    def step(_, at):
        found, _ = objective.estimate(jax.random.key(0), carry, at, rows)
        return jax.tree.map(lambda leaf, slope: leaf - 0.3 * slope, at, found.gradient)

    done = jax.lax.fori_loop(0, 3000, step, model)
    entropy = 1.5 * np.log(2)
    assert float(objective.revalue(done, objectives.Contrast(rows, None, None))) < entropy + 0.1
    assert np.isfinite(float(exact_log_z(done)))
