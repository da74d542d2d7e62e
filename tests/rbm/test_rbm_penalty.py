"""The penalty of correlation against sums over all states, and the report's practical version."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from boltzmann_cases import all_states, made
from jax.flatten_util import ravel_pytree

from natgrad.layers import generator
from natgrad.models.rbm import moments, negative, objectives, penalty
from natgrad.models.rbm.machine import hidden_inputs
from natgrad.models.rbm.partition import exact_log_z

WHICH = {"vh": ("vh",), "vv": ("vv",), "hh": ("hh",), "all": ("vh", "vv", "hh")}


@functools.partial(jax.jit, static_argnums=1)
def exact(model, chosen):
    return penalty.covariance_penalty(model, moments.enumerated_joint(model), penalty.BLOCKS[chosen])


def flat(model):
    return np.asarray(ravel_pytree(model)[0])


def naive_penalty(model, coding, chosen):
    """The squared norms of covariances, from every pair of states."""
    visible, hidden = model.sizes
    v = jnp.repeat(jnp.asarray(all_states(visible, coding)), 2**hidden, axis=1)
    h = jnp.tile(jnp.asarray(all_states(hidden, coding)), (1, 2**visible))
    p = jax.nn.softmax(model.visible_bias @ v + model.hidden_bias @ h + (h * (model.weight @ v)).sum(axis=0))
    apart = {"v": v - (v @ p)[:, None], "h": h - (h @ p)[:, None]}
    return sum((((apart[name[0]] * p) @ apart[name[1]].T) ** 2).sum() for name in WHICH[chosen])


@pytest.mark.parametrize(
    ("coding", "sizes", "chosen"),
    [
        ("binary", (4, 3), "all"),
        ("binary", (3, 4), "vv"),
        ("signed", (4, 3), "vh"),
        ("signed", (3, 4), "all"),
        ("signed", (4, 3), "hh"),
    ],
)
@pytest.mark.few(1)
def test_the_gradient_is_that_of_the_enumerated_penalty(coding, sizes, chosen):
    model = made(coding, sizes)
    expected, slope = jax.jit(jax.value_and_grad(lambda m: naive_penalty(m, coding, chosen)))(model)
    value, gradient = exact(model, chosen)
    np.testing.assert_allclose(value, expected, atol=1e-10)
    np.testing.assert_allclose(flat(gradient), flat(slope), atol=1e-10)
    assert np.abs(flat(slope)).max() > 1e-3


@pytest.mark.slow
def test_many_states_are_summed_in_portions(monkeypatch):
    model = made("signed", (4, 3))
    whole = exact(model, "all")
    monkeypatch.setattr(moments, "_PORTION", 9)
    found = jax.jit(
        lambda m: penalty.covariance_penalty(m, moments.enumerated_joint(m), penalty.BLOCKS["all"])
    )(model)
    np.testing.assert_allclose(flat(found), flat(whole), atol=1e-12)


def test_gaussian_units():
    model = made("binary", (4, 3), scale=0.4, gaussian=True)
    slope = jax.jit(jax.grad(lambda m: exact(m, "all")[0]))(model)
    np.testing.assert_allclose(flat(exact(model, "all")[1]), flat(slope), atol=1e-10)


def test_samples_that_are_all_states_give_the_exact_gradient():
    """Every visible state as often as it is likely, up to a rounding that a machine of zeros has not."""
    model = made("signed", (4, 3))
    model = model.with_arrays(0 * model.weight, model.hidden_bias, 0 * model.visible_bias)
    rows = jnp.asarray(all_states(4, "signed"))
    find = jax.jit(
        lambda m: penalty.covariance_penalty(
            m, moments.sampled_joint(m, rows, hidden_inputs(m, rows)), penalty.BLOCKS["all"]
        )
    )
    np.testing.assert_allclose(flat(find(model)), flat(exact(model, "all")), atol=1e-12)


def test_the_loss_is_a_mixture():
    model, rows = made(), jnp.asarray(all_states(4, "binary")[:, ::3])
    likelihood = objectives.enumerated_likelihood()
    mixed = penalty.penalized(likelihood, 0.3, penalty.BLOCKS["vh"])
    carry = mixed.init(generator.key(0), model, rows)
    one, _ = jax.jit(likelihood.estimate)(generator.key(1), carry, model, rows)
    found, _ = jax.jit(mixed.estimate)(generator.key(1), carry, model, rows)
    other, slope = exact(model, "vh")
    np.testing.assert_allclose(found.value, 0.7 * one.value + 0.3 * other, atol=1e-10)
    np.testing.assert_allclose(flat(found.gradient), 0.7 * flat(one.gradient) + 0.3 * flat(slope), atol=1e-10)
    np.testing.assert_allclose(found.diagnostics["penalty"], other, atol=1e-10)


@pytest.mark.slow
def test_the_practical_version_adds_the_average_change_of_the_covariance():
    """Twenty steps by hand: the average over 15 of the product rule's differences, and gamma's course."""
    rows = jnp.asarray(all_states(3, "binary")[:, ::3])
    machines = [made("binary", (3, 4), scale=0.1 * (1 + step)) for step in range(20)]
    likelihood = objectives.enumerated_likelihood()
    practical = penalty.practically_penalized(likelihood, 0.5, threshold=0.002, share=0.4)
    carry = practical.init(generator.key(0), machines[0], rows)
    step, plainly, means = map(jax.jit, (practical.estimate, likelihood.estimate, jax.grad(exact_log_z)))
    gamma, before, changes, course = 0.5, None, [], []
    for model in machines:
        found, carry = step(generator.key(1), carry, model, rows)
        plain, _ = plainly(generator.key(1), objectives.Carried((), carry.offsets), model, rows)
        there = means(model)
        both, above, below = map(np.asarray, (there.weight, there.hidden_bias, there.visible_bias))
        if before is not None:  # one factor of each product at the step before
            changes.append(both - before[0] - np.outer(above - before[1], below))
            changes[-1] -= np.outer(before[1], below - before[2])
        added = np.mean(changes[-penalty.WINDOW :], axis=0) if changes else 0 * both
        expected = (1 - gamma) * plain.gradient.weight + gamma * added
        np.testing.assert_allclose(found.gradient.weight, expected, atol=1e-10)
        np.testing.assert_allclose(found.gradient.visible_bias, (1 - gamma) * plain.gradient.visible_bias)
        np.testing.assert_allclose(found.diagnostics["gamma"], gamma)
        risen = (np.abs(added) > 0.002).mean() > 0.4
        gamma = np.clip(gamma * 1.1 if risen else gamma / 1.1, 1e-5, 1)
        before = both, above, below
        course.append(risen)
    assert {True, False} == set(map(bool, course))


@pytest.mark.slow
def test_a_penalty_from_chains():
    """The average over many chains is near the exact gradient; no z-test, as the estimate is biased."""
    model, rows = made("signed", scale=0.3), jnp.asarray(all_states(4, "signed")[:, ::3])
    objective = penalty.penalized(
        objectives.sampled_likelihood(negative.persistent(20000, 10)), 1.0, penalty.BLOCKS["all"]
    )
    carry = objective.init(generator.key(0), model, rows)
    found, _ = jax.jit(objective.estimate)(generator.key(1), carry, model, rows)
    expected = flat(exact(model, "all")[1])
    assert np.abs(flat(found.gradient) - expected).max() < 0.1 * np.abs(expected).max()
