"""The bidirectional machine's likelihood and normalizer against enumeration, within their own errors."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import oracles
from cases import CODINGS
from natgrad.evaluate.weights import portion_sizes
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz import normalizer as bidirectional


@cache
def enumerated(coding):
    """A machine, its visible states as it codes them, their 2 log sum_h sqrt(p q), and log Z^2."""
    model = cases.machine((4, 3, 2), CODINGS[coding], spread=0.4)
    m = oracles.numpy_model(model)
    states = oracles.all_states(4)
    roots = lambda x: [  # noqa: E731
        np.exp((oracles.log_joint(m, [x, *h]) + oracles.log_recognition(m, [x, *h])) / 2)
        for h in oracles.hidden_states(m)
    ]
    logs = 2 * np.log([sum(roots(x)) for x in states])
    visible = model.coding.value(jnp.asarray(np.array(states).T), jnp.float64)
    return model, visible, logs, np.log(np.exp(logs).sum())


@pytest.mark.slow
@pytest.mark.parametrize("coding", CODINGS)
def test_the_unnormalized_likelihood_is_within_its_error(coding):
    model, visible, logs, _ = enumerated(coding)
    got = bidirectional.log_unnormalized(jax.random.key(1), model, visible, samples=4000)
    assert abs(got.mean - logs.mean()) < 5 * got.mc_se
    assert got.mc_se < 0.01
    assert got.se == pytest.approx(got.rows.std(ddof=1) / 4)
    np.testing.assert_allclose(got.rows, logs, atol=0.2)


@pytest.mark.parametrize(
    ("draws", "coding"),
    [
        (20_000, "signed"),
        (20_001, "binary"),
        pytest.param(20_000, "binary", marks=pytest.mark.slow),
        pytest.param(20_001, "signed", marks=pytest.mark.slow),
    ],
)
@pytest.mark.few(1)
def test_the_normalizer_is_within_its_error(coding, draws):
    model, _, _, log_z2 = enumerated(coding)
    got = bidirectional.normalizer(jax.random.key(2), model, draws=draws)
    assert abs(got.log_z2 - log_z2) < 5 * got.se
    assert got.se < 0.01
    assert got.draws == draws
    assert got.pareto_k < 0.7


@pytest.mark.slow
def test_errors_are_the_spread_over_seeds():
    model, visible, _, _ = enumerated("signed")
    keys = jax.random.split(jax.random.key(8), 200)
    rows = [bidirectional.log_unnormalized(key, model, visible, samples=100) for key in keys]
    z2 = [bidirectional.normalizer(key, model, draws=500) for key in keys]
    for values, errors in (
        ([run.mean for run in rows], [run.mc_se for run in rows]),
        ([run.log_z2 for run in z2], [run.se for run in z2]),
    ):
        claimed = np.sqrt(np.mean(np.square(errors)))
        assert claimed / np.std(values, ddof=1) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("samples", [150, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 100))])
def test_exactly_the_samples_asked_for_are_summed(samples):
    """The same weights drawn apart: twice the log of the mean of their roots."""
    model, visible, _, _ = enumerated("signed")
    got = bidirectional.log_unnormalized(jax.random.key(3), model, visible, samples=samples)
    rows, chunk = portion_sizes(sum(model.sizes), visible.shape[1], samples, 64.0)
    assert rows == visible.shape[1]
    key = jax.random.fold_in(jax.random.key(3), 0)
    weigh = jax.jit(
        lambda turn: helmholtz.log_weights(
            model, helmholtz.wake(jax.random.fold_in(key, turn), model, visible, chunk)
        )
    )
    drawn = np.concatenate([weigh(turn) for turn in range(-(-samples // chunk))], axis=1)[:, :samples]
    roots = np.exp(drawn / 2)
    np.testing.assert_allclose(got.rows, 2 * np.log(roots.mean(axis=1)), atol=1e-10)
    variance = 4 * roots.var(axis=1) / samples / roots.mean(axis=1) ** 2
    assert got.mc_se == pytest.approx(np.sqrt(variance.sum()) / 16, rel=1e-8)
    assert got.samples == samples
