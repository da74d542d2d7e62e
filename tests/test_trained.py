"""A trained model as its user sees it: NumPy in, NumPy out, {0,1} in either coding."""

from functools import cache

import numpy as np
import pytest

import cases
import oracles
from cases import CODINGS
from natgrad.errors import InputError
from natgrad.models.helmholtz.trained import Trained

ROWS = np.array([[0, 1, 1, 0], [1, 1, 0, 1], [0, 0, 0, 1]], np.uint8)


@cache
def trained(coding="signed"):
    return Trained(cases.machine((4, 3, 2), CODINGS[coding], spread=0.4))


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.few(1)
def test_samples_are_binary_rows_with_the_means_they_came_from(coding):
    model = trained(coding)
    samples, means = model.sample(5000, seed=3), model.means(5000, seed=3)
    assert samples.shape == means.shape == (5000, 4)
    assert samples.dtype == np.uint8
    assert set(np.unique(samples)) == {0, 1}
    error = np.sqrt((means * (1 - means)).sum(axis=0))
    assert np.abs((samples - means).sum(axis=0) / error).max() < 5
    m = oracles.numpy_model(model.parameters)
    exact = sum(np.exp(oracles.log_likelihood(m, x)) * x for x in oracles.all_states(4))
    assert np.abs(samples.mean(axis=0) - exact).max() < 5 * 0.5 / np.sqrt(5000)


def test_seeds_decide_samples():
    one, same, other = (trained().sample(20, seed=seed) for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.few(1)
def test_likelihoods_agree_with_enumeration(coding):
    model = trained(coding)
    m = oracles.numpy_model(model.parameters)
    expected = np.array([oracles.log_likelihood(m, row) for row in ROWS])
    np.testing.assert_allclose(model.exact_log_likelihood(ROWS), expected, atol=1e-10)
    sampled = model.log_likelihood(ROWS, samples=4000, seed=1)
    assert abs(sampled.mean - expected.mean()) < 5 * sampled.mc_se
    assert sampled.samples == 4000
    assert sampled.rows.shape == (3,)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.few(1)
@pytest.mark.slow
def test_posterior_means_agree_with_enumeration(coding):
    model = trained(coding)
    m = oracles.numpy_model(model.parameters)
    got = model.posterior(ROWS, samples=400_000, seed=0)
    assert [layer.shape for layer in got] == [(3, 3), (3, 2)]
    for number, row in enumerate(ROWS):
        joint = [(h, np.exp(oracles.log_joint(m, [row, *h]))) for h in oracles.hidden_states(m)]
        total = sum(weight for _, weight in joint)
        for layer in (0, 1):
            expected = sum(weight * h[layer] for h, weight in joint) / total
            np.testing.assert_allclose(got[layer][number], expected, atol=0.03)


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (
            np.zeros((2, 5)),
            r"expected at least one row of 4 values, got an array of shape \(2, 5\); reshape it",
        ),
        (np.zeros(4), r"shape \(4,\)"),
        (np.zeros((0, 4)), r"shape \(0, 4\)"),
        (np.full((1, 4), 2.0), r"expected values in \[0, 1\], got 2.0 to 2.0; rescale the rows"),
        (np.full((1, 4), -1.0), "got -1.0 to -1.0"),
        (np.full((1, 4), np.nan), "got nan to nan"),
    ],
)
def test_rows_that_do_not_fit_are_said(rows, match):
    for ask in (trained().log_likelihood, trained().exact_log_likelihood, trained().posterior):
        with pytest.raises(InputError, match=match):
            ask(rows)


def test_numbers_that_make_no_sense_are_said():
    with pytest.raises(InputError, match="samples: expected at least 1, got 0"):
        trained().log_likelihood(ROWS, samples=0)
    with pytest.raises(InputError, match="samples: expected at least 1, got -2"):
        trained().posterior(ROWS, samples=-2)
    with pytest.raises(InputError, match="memory_mb: expected a number greater than 0, got 0"):
        trained().log_likelihood(ROWS, memory_mb=0)
    for ask in (trained().sample, trained().means):
        with pytest.raises(InputError, match="number: expected at least 1, got 0"):
            ask(0)
