"""Gradients and weights against enumeration; estimators without bias."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
from cases import CODINGS, SIZES, machine
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz import phases
from natgrad.models.helmholtz.phases import (
    Phases,
    Shares,
    bidirectional,
    normalized,
    reweighted,
    sleep_only,
    uniform,
    wake_sleep,
)

ROWS, SAMPLES = 3, 5
METHODS = {
    "wake-sleep": (wake_sleep(SAMPLES), Shares(0.0, 1.0)),
    "reweighted": (reweighted(SAMPLES), Shares(0.5, 0.5, 1.0)),
    "no baseline": (reweighted(SAMPLES, baseline=False), Shares(0.5, 0.5, 0.0)),
    "other shares": (reweighted(SAMPLES, wake_share=0.3, sleep_share=0.9), Shares(0.3, 0.9, 1.0)),
}
REVALUED = {name: objective for name, (objective, _) in METHODS.items()} | {
    "bidirectional": bidirectional(SAMPLES),
    "bidirectional, no baseline": bidirectional(SAMPLES, baseline=False),
    "little sleep": wake_sleep(SAMPLES, sleep_share=0.4),
    "sleep only": sleep_only(SAMPLES, 0.7),
}


def vector(model):
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(model)])


wake_of = jax.jit(helmholtz.wake, static_argnums=3)
weights_of = jax.jit(helmholtz.log_weights)


def visible(model, rows=ROWS, seed=3):
    on = jax.random.bernoulli(jax.random.key(seed), 0.5, (model.sizes[0], rows))
    return model.coding.value(on, jnp.float64)


def column(model, drawn, sample, row):
    """One draw of a pass as {0,1} vectors, from the visible layer upward."""
    pick = lambda value: model.coding.on(np.asarray(value)[:, row, min(sample, value.shape[2] - 1)])  # noqa: E731
    return [pick(value) for value in drawn.values]


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.few(1)
def test_log_weights_equal_loops(coding, sizes):
    model = machine(SIZES[sizes], CODINGS[coding])
    m = oracles.numpy_model(model)
    drawn = wake_of(jax.random.key(5), model, visible(model), SAMPLES)
    got = np.asarray(weights_of(model, drawn))
    for s in range(SAMPLES):
        for r in range(ROWS):
            layers = column(model, drawn, s, r)
            expected = oracles.log_joint(m, layers) - oracles.log_recognition(m, layers)
            assert got[r, s] == pytest.approx(expected, abs=1e-10)


FEW = [("wake-sleep", "two", "signed"), ("other shares", "three", "binary"), ("no baseline", "one", "signed")]
FEW += [("reweighted", "three", "signed"), ("reweighted", "two", "binary")]
REST = [case for case in product(METHODS, SIZES, CODINGS) if case not in FEW]


@pytest.mark.parametrize(
    ("method", "sizes", "coding"), [*FEW, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)]
)
@pytest.mark.few(2)
def test_gradient_equals_loops(coding, sizes, method):
    model = machine(SIZES[sizes], CODINGS[coding])
    objective, shares = METHODS[method]
    estimate, _ = jax.jit(objective.estimate)(jax.random.key(7), (), model, visible(model))
    expected = loop_gradient(model, estimate.samples, shares)
    np.testing.assert_allclose(vector(estimate.gradient), expected, atol=1e-10, rtol=0)
    log_weights = np.asarray(weights_of(model, estimate.samples.wake))
    loss = -np.mean(np.log(np.mean(np.exp(log_weights), axis=1)))
    assert float(estimate.value) == pytest.approx(loss, abs=1e-10)


def loop_gradient(model, drawn, shares):
    """Eq. 8, 10 and 11 of the paper, one draw after the other."""
    m = oracles.numpy_model(model)
    weights = np.asarray(drawn.weights)
    rows, samples = weights.shape
    zero = np.zeros_like(m["prior"])
    total = 0.0
    for s in range(samples):
        for r in range(rows):
            layers = column(model, drawn.wake, s, r)
            prior, generation = oracles.generation_score(m, layers)
            recognition = oracles.recognition_score(m, layers)
            dreamt = oracles.recognition_score(m, column(model, drawn.dreams, s, r))
            q_wake = shares.wake * (weights[r, s] - shares.baseline / samples) / rows
            q_sleep = shares.sleep / (samples * rows)
            mixed = [
                tuple(q_wake * a + q_sleep * b for a, b in zip(one, two, strict=True))
                for one, two in zip(recognition, dreamt, strict=True)
            ]
            scaled = [(weights[r, s] / rows * w, weights[r, s] / rows * b) for w, b in generation]
            total = total - oracles.flatten(zero + weights[r, s] / rows * prior, scaled, mixed)
    return total


TOLD = [("other shares", "signed"), ("bidirectional", "binary"), ("sleep only", "signed")]
UNTOLD = [case for case in product(REVALUED, CODINGS) if case not in TOLD]


@pytest.mark.parametrize(
    ("method", "coding"), [*TOLD, *(pytest.param(*case, marks=pytest.mark.slow) for case in UNTOLD)]
)
@pytest.mark.few(1)
def test_the_gradient_of_revalue_is_that_of_the_estimate(coding, method):
    """At the model of the estimate, by automatic differentiation; elsewhere it is another one."""
    model = machine(coding=CODINGS[coding])
    estimate, _ = jax.jit(REVALUED[method].estimate)(jax.random.key(7), (), model, visible(model))
    slope = jax.jit(jax.grad(REVALUED[method].revalue))
    found = vector(slope(model, estimate.samples))
    np.testing.assert_allclose(found, vector(estimate.gradient), atol=1e-12, rtol=0)
    moved = jax.tree.map(lambda leaf: np.asarray(leaf) + 0.1, model)
    assert np.abs(vector(slope(moved, estimate.samples)) - found).max() > 1e-3


@pytest.mark.few(1)
@pytest.mark.parametrize("coding", CODINGS)
def test_weights_sum_to_one_and_follow_their_definition(coding):
    model = machine(coding=CODINGS[coding])
    drawn = wake_of(jax.random.key(5), model, visible(model), SAMPLES)
    log_weights = weights_of(model, drawn)
    raw = np.exp(np.asarray(log_weights))
    np.testing.assert_allclose(normalized(log_weights), raw / raw.sum(axis=1, keepdims=True), atol=1e-10)
    np.testing.assert_allclose(uniform(log_weights).sum(axis=1), 1.0)


def z_scores(estimates, exact):
    mean, error = estimates.mean(axis=0), estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    return (mean - exact) / np.maximum(error, 1e-12)


@pytest.mark.few(1)
@pytest.mark.parametrize("coding", CODINGS)
def test_sleep_is_unbiased(coding):
    """The mean sleep gradient is that of E_p[-log q(h | x)], summed over all states."""
    model = machine((3, 2, 2), CODINGS[coding])
    m = oracles.numpy_model(model)
    exact = 0.0
    for x in oracles.all_states(3):
        for h in oracles.hidden_states(m):
            layers = [x, *h]
            weight = np.exp(oracles.log_joint(m, layers))
            exact = exact - weight * oracles.flatten(None, [], oracles.recognition_score(m, layers))

    def sleep(key):
        estimate, _ = wake_sleep(4).estimate(key, (), model, visible(model))
        return estimate.gradient.recognition

    got = jax.jit(jax.vmap(sleep))(jax.random.split(jax.random.key(0), 4000))
    flat = np.concatenate([np.asarray(leaf).reshape(4000, -1) for leaf in jax.tree.leaves(got)], axis=1)
    assert np.abs(z_scores(flat, exact)).max() < 5


@pytest.mark.few(1)
@pytest.mark.parametrize("coding", CODINGS)
def test_wake_is_unbiased(coding):
    """Wake-sleep's generation gradient is that of E_q[-log p(x, h)] over the batch."""
    model = machine((3, 2, 2), CODINGS[coding])
    m = oracles.numpy_model(model)
    batch = visible(model)
    exact = 0.0
    for row in np.asarray(model.coding.on(batch)).T:
        for h in oracles.hidden_states(m):
            layers = [row, *h]
            weight = np.exp(oracles.log_recognition(m, layers)) / ROWS
            exact = exact - weight * oracles.flatten(*oracles.generation_score(m, layers), [])

    def wake(key):
        estimate, _ = wake_sleep(4).estimate(key, (), model, batch)
        return estimate.gradient.prior, estimate.gradient.generation

    got = jax.jit(jax.vmap(wake))(jax.random.split(jax.random.key(1), 4000))
    flat = np.concatenate([np.asarray(leaf).reshape(4000, -1) for leaf in jax.tree.leaves(got)], axis=1)
    assert np.abs(z_scores(flat, exact)).max() < 5


@pytest.mark.slow
def test_baseline_changes_no_expectation():
    """With and without baseline, q-wake gradients of the same draws differ by a mean-zero term."""
    model, batch = machine((3, 2, 2)), visible(machine((3, 2, 2)))

    def difference(key):
        kept, _ = reweighted(6).estimate(key, (), model, batch)
        dropped, _ = reweighted(6, baseline=False).estimate(key, (), model, batch)
        return jax.tree.map(jnp.subtract, kept.gradient.recognition, dropped.gradient.recognition)

    got = jax.jit(jax.vmap(difference))(jax.random.split(jax.random.key(2), 4000))
    flat = np.concatenate([np.asarray(leaf).reshape(4000, -1) for leaf in jax.tree.leaves(got)], axis=1)
    assert np.abs(flat).max() > 0.01
    assert np.abs(z_scores(flat, 0.0)).max() < 5


@pytest.mark.slow
def test_reweighted_approaches_the_likelihood_gradient():
    """With many samples, p-wake is the gradient of -log p(x) itself."""
    model = machine((3, 2))
    m = oracles.numpy_model(model)
    batch = visible(model, rows=1)
    row = np.asarray(model.coding.on(batch))[:, 0]
    exact = 0.0
    for h in oracles.hidden_states(m):
        layers = [row, *h]
        posterior = np.exp(oracles.log_joint(m, layers) - oracles.log_likelihood(m, row))
        exact = exact - posterior * oracles.flatten(*oracles.generation_score(m, layers), [])
    estimate, _ = jax.jit(reweighted(200_000).estimate)(jax.random.key(0), (), model, batch)
    got = np.concatenate(
        [
            np.asarray(leaf).ravel()
            for leaf in (estimate.gradient.prior, *jax.tree.leaves(estimate.gradient.generation))
        ]
    )
    np.testing.assert_allclose(got, exact, atol=0.01)


def test_effective_samples_lie_between_one_and_all():
    model = machine()
    estimate, _ = jax.jit(reweighted(SAMPLES).estimate)(jax.random.key(0), (), model, visible(model))
    assert 1 <= float(estimate.diagnostics["effective_samples"]) <= SAMPLES


def test_gradient_of_hand_made_phases_uses_every_sample():
    """Swapping the weights of two different samples changes the gradient."""
    model = machine()
    wake = wake_of(jax.random.key(1), model, visible(model), SAMPLES)
    dreams = jax.jit(helmholtz.dream, static_argnums=(2, 3))(jax.random.key(2), model, ROWS, SAMPLES)
    weights = np.asarray(normalized(weights_of(model, wake)))
    gradient = jax.jit(lambda drawn: phases.phase_gradient(model, drawn, Shares(0.5, 0.5)))
    one, two = gradient(Phases(wake, weights, dreams)), gradient(Phases(wake, weights[:, ::-1], dreams))
    assert np.abs(vector(one) - vector(two)).max() > 1e-3
