"""Whitening is a chart: it moves no machine, its steps are the chart's, and it tends to the identity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from boltzmann_cases import CODINGS, Enumerated, all_states, made
from jax.flatten_util import ravel_pytree

from natgrad.layers import generator
from natgrad.models.rbm import distance, moments, objectives, whitening
from natgrad.models.rbm.machine import Offsets
from natgrad.models.rbm.partition import exact_log_likelihood
from natgrad.models.rbm.whitening import WhiteChart, from_whitened, to_whitened

codings = pytest.mark.parametrize("coding", list(CODINGS))
RULES = {"whitening": whitening.equivariant(0.2, 1e-3), "eigen": whitening.by_eigenvectors(1e-3)}


second = jax.jit(lambda model, offsets: whitening.second_moments(moments.enumerated_joint(model), offsets))


def flat(model):
    return np.asarray(ravel_pytree(model)[0])


def some_chart(seed=0):
    rng = np.random.default_rng(seed)
    return WhiteChart(*(jnp.asarray(np.eye(n) + 0.3 * rng.normal(size=(n, n))) for n in (4, 3)))


def some_offsets():
    rng = np.random.default_rng(1)
    return Offsets(jnp.asarray(rng.random(4)), jnp.asarray(rng.random(3)))


def in_chart(model, chart, offsets, biases=True):
    """W', b' and a' of a machine: the change of a chart is absorbed into them."""
    low, high = (np.asarray(each) for each in chart)
    w, m, k = np.asarray(model.weight), *(np.asarray(each) for each in offsets)
    above, below = np.asarray(model.hidden_bias) + w @ m, np.asarray(model.visible_bias) + k @ w
    if biases:
        above, below = np.linalg.solve(high.T, above), np.linalg.solve(low.T, below)
    weight = np.linalg.solve(high.T, w) @ np.linalg.inv(low)
    return model.with_arrays(*map(jnp.asarray, (weight, above, below)))


def log_p_of_chart(inner, chart, offsets, coding):
    """log p(v) of all states from the whitened machine's own energies, summed over h."""
    low, high = (np.asarray(each) for each in chart)
    z = low @ (all_states(4, coding) - np.asarray(offsets.visible)[:, None])
    y = high @ (all_states(3, coding) - np.asarray(offsets.hidden)[:, None])
    w, b, a = (np.asarray(each) for each in (inner.weight, inner.hidden_bias, inner.visible_bias))
    energies = (a @ z)[:, None] + (b @ y)[None] + z.T @ w.T @ y
    whole = np.logaddexp.reduce(energies, axis=1)
    return whole - np.logaddexp.reduce(whole)


@codings
@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.few(1)
def test_an_update_of_the_chart_changes_no_probability(coding, rule):
    """With old and new U and V, its parameters absorbing the change, it is the plain machine."""
    model, offsets, chart = made(coding), some_offsets(), some_chart()
    found = second(model, offsets)
    later, _ = jax.jit(RULES[rule])(chart, found, jnp.zeros(()))
    assert np.abs(later.visible - chart.visible).max() > 1e-2
    expected = exact_log_likelihood(model, jnp.asarray(all_states(4, coding)))
    for each in (chart, later):
        inner = in_chart(model, each, offsets)
        np.testing.assert_allclose(log_p_of_chart(inner, each, offsets, coding), expected, atol=1e-10)
        np.testing.assert_allclose(flat(from_whitened(inner, each, offsets)), flat(model), atol=1e-10)


@pytest.mark.parametrize(("coding", "biases"), [("binary", True), ("signed", False)])
@pytest.mark.few(1)
def test_a_step_is_the_plain_step_of_the_chart(coding, biases):
    model, rows = made(coding), jnp.asarray(all_states(4, coding)[:, ::3])
    objective = objectives.enumerated_likelihood(centering=True)
    carry = objective.init(generator.key(0), model, rows)
    found, _ = jax.jit(objective.estimate)(generator.key(1), carry, model, rows)
    direction = whitening.whitened_steepest(RULES["eigen"], moments.joint_of, biases=biases)
    step = jax.jit(direction.apply)(
        generator.key(2), direction.init(generator.key(2), model, found), model, found
    )
    chart, offsets = step.carry.chart, found.samples.offsets

    def loss(inner):
        return objective.revalue(from_whitened(inner, chart, offsets, biases=biases), found.samples)

    inner = in_chart(model, chart, offsets, biases)
    slope = jax.jit(jax.grad(loss))(inner)
    turned = to_whitened(found.gradient, chart, offsets, biases=biases)
    np.testing.assert_allclose(flat(slope), flat(turned), atol=1e-10)
    moved = jax.tree.map(lambda at, by: at - 0.1 * by, inner, slope)
    taken = jax.tree.map(lambda at, by: at - 0.1 * by, model, step.vector)
    np.testing.assert_allclose(
        flat(from_whitened(moved, chart, offsets, biases=biases)), flat(taken), atol=1e-10
    )


@codings
def test_second_moments_are_those_of_all_states(coding):
    model, offsets = made(coding), some_offsets()
    every = Enumerated(model, coding)
    found = second(model, offsets)
    for values, offset, block in zip((every.v, every.h), offsets, found, strict=True):
        apart = values - np.asarray(offset)[:, None]
        np.testing.assert_allclose(block, (apart * every.p) @ apart.T, atol=1e-12)


@pytest.mark.slow
def test_the_rule_tends_to_a_root_of_the_inverse():
    """Up to a rotation the limit is that of the eigenvectors, whatever the rate is."""
    model, offsets = made("signed"), some_offsets()
    found = second(model, offsets)
    last, _ = RULES["eigen"](some_chart(), found, jnp.zeros(()))
    for rate in (0.2, 50.0):
        move = jax.jit(whitening.equivariant(rate, 1e-3))
        chart = some_chart()
        for _ in range(400):
            chart, _ = move(chart, found, jnp.zeros(()))
        for one, other in zip(chart, last, strict=True):
            np.testing.assert_allclose(one.T @ one, other.T @ other, rtol=1e-6, atol=1e-8)


@pytest.mark.few(1)
@codings
def test_distances_against_all_states(coding):
    model, chart, offsets = made(coding), some_chart(), some_offsets()
    every = Enumerated(model, coding)
    low, high = (np.asarray(each) for each in chart)
    v = low @ (every.v - np.asarray(offsets.visible)[:, None])
    h = high @ (every.h - np.asarray(offsets.hidden)[:, None])
    t = np.concatenate([(h[:, None] * v).reshape(12, -1), h, v])
    cov = lambda x: (x * every.p) @ x.T - np.outer(x @ every.p, x @ every.p)  # noqa: E731
    far = lambda x: ((cov(x) - np.eye(len(x))) ** 2).sum()  # noqa: E731
    blocks = distance._exact_white_distance(model, chart)
    np.testing.assert_allclose(blocks, np.sqrt((far(v) + far(h)) / 7), atol=1e-10)
    whole = distance._fisher_distance(model, chart, offsets, True)
    np.testing.assert_allclose(whole, np.sqrt(far(t) / 19), atol=1e-10)


def test_the_traces_of_a_sampled_fisher_have_no_bias():
    """Means over many small samples of all states against enumeration."""
    model = made("binary")
    every = Enumerated(model, "binary")
    t, rng = every.features(), np.random.default_rng(0)
    drawn = [t[:, rng.choice(len(every.p), 6, p=every.p)] for _ in range(3000)]
    found = np.array(jax.jit(jax.vmap(distance._traces))(jnp.asarray([x.T @ x for x in drawn])))
    expected = np.trace(every.fisher()), (every.fisher() ** 2).sum()
    error = found.std(axis=1) / np.sqrt(3000)
    assert (np.abs(found.mean(axis=1) - expected) < 4 * error).all()
    assert (error < 0.03 * np.array(expected)).all()


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.slow
def test_the_distance_from_samples_is_that_of_their_statistics(biases):
    model, chart, offsets = made("signed"), some_chart(), some_offsets()
    every = Enumerated(model, "signed")
    drawn = np.random.default_rng(1).choice(len(every.p), 1000, p=every.p)
    v, h = (jnp.asarray(x[:, drawn]) for x in (every.v, every.h))
    found = distance.sampled_fisher_distance(v, h, chart, offsets, biases=biases)
    exact = distance._fisher_distance(model, chart, offsets, biases)
    np.testing.assert_allclose(found, exact, rtol=0.1)


def test_whitening_brings_the_fisher_nearer_to_the_identity():
    model = made("binary", scale=0.2)
    centers = Enumerated(model, "binary")
    offsets = Offsets(jnp.asarray(centers.v @ centers.p), jnp.asarray(centers.h @ centers.p))
    found = second(model, offsets)
    chart, _ = whitening.by_eigenvectors(1e-9)(some_chart(), found, jnp.zeros(()))
    assert distance._exact_white_distance(model, chart) < 1e-6
    plain = distance._fisher_distance(model, whitening.identity_chart(model), offsets, True)
    white = distance._fisher_distance(model, chart, offsets, True)
    assert white < 0.5 * plain


def test_averages_and_charts_that_serve_several_steps():
    """With chains: a plain mean of what three steps have seen; the chart changes when it is due."""
    model = made("signed")
    rows = jnp.asarray(all_states(4, "signed")[:, ::3])
    nothing = Offsets(jnp.zeros(4), jnp.zeros(3))
    direction = whitening.whitened_steepest(RULES["eigen"], moments.joint_of_data, averaged=True, refresh=2)
    kept = direction.init(generator.key(0), model, None)
    apply = jax.jit(direction.apply)
    charts, seen = [], []
    for part in (rows[:, :2], rows[:, 2:4], rows[:, 4:6]):
        drawn = objectives.Contrast(part, None, nothing)
        found = objectives.Estimate(jnp.zeros(()), model, drawn, {})
        seen.append(np.asarray(part @ part.T / 2))
        kept = apply(generator.key(1), kept, model, found).carry
        charts.append(np.asarray(kept.chart.visible))
    np.testing.assert_allclose(kept.seen.visible, np.mean(seen, axis=0), atol=1e-12)
    np.testing.assert_array_equal(charts[0], charts[1])
    assert np.abs(charts[2] - charts[1]).max() > 1e-3
    white = charts[2] @ (np.mean(seen, axis=0) + 1e-3 * np.eye(4)) @ charts[2].T
    np.testing.assert_allclose(white, np.eye(4), atol=1e-8)
