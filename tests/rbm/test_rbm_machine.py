"""Energies, conditionals and Gibbs sampling against sums over all states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from boltzmann_cases import CODINGS, Enumerated, all_states, made
from jax.flatten_util import ravel_pytree

from natgrad.layers import generator
from natgrad.models.rbm import gibbs, machine
from natgrad.models.rbm.units import BernoulliUnits, GaussianUnits

codings = pytest.mark.parametrize("coding", list(CODINGS))


@pytest.mark.few(1)
@codings
def test_energies_and_conditionals_agree_with_all_states(coding):
    model = made(coding)
    every = Enumerated(model, coding)
    logs = machine.negative_energy(model, jnp.asarray(every.v), jnp.asarray(every.h)) - every.log_z
    np.testing.assert_allclose(np.exp(logs), every.p, atol=1e-12)
    visible = jnp.asarray(every.below.T)
    free = machine.negative_free_energy(model, visible) - every.log_z
    np.testing.assert_allclose(free, every.log_visible(), atol=1e-12)
    weights = every.p.reshape(len(every.below), -1)
    means = (every.h.reshape(3, len(every.below), -1) * weights).sum(axis=2) / weights.sum(axis=1)
    found = model.hidden_units.mean(machine.hidden_inputs(model, visible))
    np.testing.assert_allclose(found, means, atol=1e-12)
    above = jnp.asarray(all_states(3, coding))
    totals = np.exp(machine.hidden_marginal(model, above) - every.log_z)
    np.testing.assert_allclose(totals, weights.sum(axis=0), atol=1e-12)


@codings
def test_swapping_layers_changes_names_only(coding):
    model = made(coding)
    v, h = (jnp.asarray(all_states(n, coding)[:, :8]) for n in (4, 3))
    twice = machine.swapped(machine.swapped(model))
    np.testing.assert_allclose(
        machine.negative_energy(machine.swapped(model), h, v), machine.negative_energy(model, v, h)
    )
    assert jax.tree.structure(twice) == jax.tree.structure(model)


@pytest.mark.slow
def test_a_gaussian_machine_integrates_to_the_closed_form():
    model = made(sizes=(1, 3), gaussian=True)
    grid = jnp.linspace(-15, 15, 20001)
    hidden = jnp.asarray(all_states(3, "binary"))
    for h, log in zip(hidden.T, machine.hidden_marginal(model, hidden), strict=True):
        column = jnp.broadcast_to(h[:, None], (3, grid.size))
        energies = machine.negative_energy(model, grid[None], column)
        np.testing.assert_allclose(np.log(np.trapezoid(np.exp(energies), grid)), log, atol=1e-9)


@pytest.mark.parametrize("units", [*(BernoulliUnits(c) for c in CODINGS.values()), GaussianUnits()])
@pytest.mark.few(1)
def test_mean_and_variance_are_derivatives_of_the_log_partition(units):
    at = jnp.array([[-3.0], [-0.2], [0.0], [1.7]])
    slope = jax.grad(lambda y: units.log_partition(y).sum())
    np.testing.assert_allclose(slope(at), units.mean(at), atol=1e-12)
    bent = jax.jvp(slope, (at,), (jnp.ones_like(at),))[1]
    np.testing.assert_allclose(bent, units.variance(at), atol=1e-12)


def test_the_two_charts_are_transposes_of_each_other():
    model, other = made(seed=1), made(seed=2)
    offsets = machine.Offsets(jnp.linspace(0, 1, 4), jnp.linspace(-1, 1, 3))
    there, back = machine.to_centered(model, offsets), machine.from_centered(other, offsets)
    left = ravel_pytree(there)[0] @ ravel_pytree(other)[0]
    np.testing.assert_allclose(left, ravel_pytree(model)[0] @ ravel_pytree(back)[0], atol=1e-12)


def test_the_centered_gradient_is_that_of_the_centered_energy():
    model, offsets = made(), machine.Offsets(jnp.linspace(0, 1, 4), jnp.linspace(0.1, 0.6, 3))
    v, h = (jnp.asarray(all_states(n, "binary")[:, :8]) for n in (4, 3))

    def centered_energy(chart):
        low, high = v - offsets.visible[:, None], h - offsets.hidden[:, None]
        pair = (high * (chart.weight @ low)).sum() + (
            chart.visible_bias @ low + chart.hidden_bias @ high
        ).sum()
        return pair / v.shape[1]

    mean = machine.statistics(model, v, h)
    shift = model.with_arrays(  # the constants that centering adds to log Z
        -jnp.outer(offsets.hidden, offsets.visible), -offsets.hidden, -offsets.visible
    )
    found = machine.to_centered(mean, offsets)
    expected = jax.grad(centered_energy)(model)
    np.testing.assert_allclose(found.weight - shift.weight, expected.weight, atol=1e-12)
    np.testing.assert_allclose(found.hidden_bias + shift.hidden_bias, expected.hidden_bias, atol=1e-12)
    np.testing.assert_allclose(found.visible_bias + shift.visible_bias, expected.visible_bias, atol=1e-12)


@pytest.mark.slow
@codings
def test_gibbs_sampling_has_the_machine_as_its_law(coding):
    model, number = made(coding, scale=0.4), 20_000
    every = Enumerated(model, coding)
    start = gibbs.independent(generator.key(0), model, number)
    found = jax.jit(gibbs.turns, static_argnums=3)(generator.key(1), model, start, 12)
    t = ravel_pytree(machine.statistics(model, found.visible, found.hidden))[0]
    error = np.sqrt(np.diag(every.fisher()) / number)
    assert (np.abs(t - every.mean()) < 5 * error).all()


def test_biases_give_the_means_of_the_data():
    means = np.array([0.0, 0.3, 1.0])
    for coding in CODINGS.values():
        units = BernoulliUnits(coding)
        bias = machine.bias_of(units, means, 98)
        np.testing.assert_allclose(
            coding.on(units.mean(jnp.asarray(bias)[:, None]))[:, 0], (98 * means + 1) / 100
        )
    np.testing.assert_allclose(machine.bias_of(GaussianUnits(), means, 98), means)
