"""Gradients of E[f]: enumeration, Gaussian moments, Monte Carlo, and the fit that is the natural gradient."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from distributions import FAMILIES, support

from natgrad.errors import InputError
from natgrad.families.categorical import Categorical
from natgrad.relax import relaxation

TOY = relaxation.polynomial({(0,): 1.0, (1,): 2.0, (0, 1): 3.0})


def assert_close(left, right, tolerance=1e-8):
    np.testing.assert_allclose(np.asarray(left), np.asarray(right), rtol=tolerance, atol=tolerance)


def test_the_toy_function_is_the_slides_table():
    assert_close(TOY(jnp.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])), [6, -4, -2, 0], 0)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["independence", "pairwise"])
def test_enumerated_expectation_and_its_gradient_are_sums(name):
    family, theta = FAMILIES[name]
    expected = relaxation.enumerated_mean(TOY, family)
    points, chances = support(family, theta)
    statistics = family.statistics(points)
    assert_close(expected(theta), chances @ TOY(points), 1e-12)
    covariance = (chances * (TOY(points) - chances @ TOY(points))) @ (statistics - chances @ statistics)
    assert_close(jax.grad(expected)(theta), covariance, 1e-12)


@pytest.mark.slow
def test_gaussian_moments_up_to_degree_four_are_quadratures():
    family, theta = FAMILIES["full"]
    points, chances = support(family, theta)
    mean, covariance = family.moments(theta)
    for degree in range(5):
        for term in itertools.combinations_with_replacement(range(2), degree):
            direct = chances @ jnp.prod(points[:, list(term)], axis=1)
            assert_close(relaxation.moment(mean, covariance, term), direct, 1e-12)


@pytest.mark.slow
def test_gaussian_gradient_of_a_quartic_is_the_covariance_with_the_statistics():
    family, theta = FAMILIES["full"]
    quartic = relaxation.polynomial({(0,): 6.0, (0, 0): 8.0, (0, 0, 1): -1.0, (0, 0, 1, 1): -2.0})
    gradient = jax.jit(jax.grad(relaxation.gaussian_expectation(quartic, family)))(theta)
    points, chances = support(family, theta)
    statistics = family.statistics(points)
    values = quartic(points)
    assert_close(gradient, (chances * values) @ (statistics - chances @ statistics), 1e-9)


@pytest.mark.slow
def test_monte_carlo_gradient_is_unbiased_with_either_center():
    family, theta = FAMILIES["pairwise"]
    exact = jax.grad(relaxation.enumerated_mean(TOY, family))(theta)

    def both(key):
        points = family.sample(key, theta, 20)
        values, statistics = TOY(points), family.statistics(points)
        return (
            relaxation.covariance_gradient(values, statistics),
            relaxation.sampled_gradient(key, TOY, family, theta, 20)[1],
        )

    for found in jax.jit(jax.vmap(both))(jax.random.split(jax.random.key(0), 2000)):
        error = found.std(axis=0) / np.sqrt(len(found))
        assert jnp.all(jnp.abs(found.mean(axis=0) - exact) < 5 * error)


@pytest.mark.parametrize("number", [12, 40])
@pytest.mark.few(1)
def test_natural_gradient_from_samples_is_the_coefficients_of_f(number):
    family, theta = FAMILIES["pairwise"]
    coefficients = jnp.array([0.5, -1.0, 2.0, 0.3, -0.7])
    statistics = family.statistics(family.sample(jax.random.key(1), theta, number))
    found = relaxation.natural_from_samples(statistics @ coefficients + 3.0, statistics)
    assert_close(found, coefficients, 1e-9)


@pytest.mark.slow
def test_damped_natural_gradient_is_the_same_in_both_spaces():
    rng = np.random.default_rng(0)
    statistics, values = jnp.asarray(rng.normal(size=(6, 9))), jnp.asarray(rng.normal(size=6))
    centered = statistics - statistics.mean(axis=0)
    fisher = centered.T @ centered / 5 + 0.3 * jnp.eye(9)
    expected = jnp.linalg.solve(fisher, centered.T @ (values - values.mean()) / 5)
    assert_close(relaxation.natural_from_samples(values, statistics, 0.3), expected, 1e-10)


def test_natural_flows_of_polarization_end_where_its_extrema_are():
    family = Categorical(4)

    @jax.jit
    def climb(theta, sign):
        def step(_, theta):
            slope = jax.grad(lambda t: relaxation.polarization(family.probabilities(family.expectation(t))))
            return theta + sign * jnp.linalg.solve(family.natural_fisher(theta), slope(theta))

        return family.probabilities(family.expectation(jax.lax.fori_loop(0, 1000, step, theta)))

    assert_close(climb(jnp.array([0.5, 0.4, 0.1]), 0.5), [0.5, 0.5, 0, 0], 1e-3)
    assert_close(climb(jnp.array([3.0, 0.0, 0.0]), -0.5), [1, 0, 0, 0], 1e-3)
    # p^2 (1 - p) is convex below 1/3: among four outcomes the uniform distribution is a local minimum
    assert_close(climb(jnp.array([0.5, 0.4, 0.1]), -0.5), [0.25] * 4, 1e-3)


def test_one_natural_step_in_eta_is_the_maximum_likelihood_estimate():
    family, theta = FAMILIES["independence"]
    data = family.sample(jax.random.key(0), theta, 50)
    statistics = family.statistics(data).mean(axis=0)
    value = relaxation.mean_log_likelihood(family, statistics)
    eta = family.expectation(0.3 * theta)
    natural = jax.grad(value)(family.natural(eta))  # the gradient in theta is natural in eta
    estimate = family.natural(eta + natural)
    assert_close(jax.grad(value)(estimate), jnp.zeros(3), 1e-12)


def test_a_polynomial_of_degree_five_is_refused():
    with pytest.raises(InputError, match="up to degree 4"):
        relaxation.polynomial({(0, 0, 0, 1, 1): 1.0})
    assert TOY.size == 2
