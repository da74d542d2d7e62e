"""Geodesics against the geodesic equation, connections against their charts, retractions that stay inside."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from distributions import COVARIANCE, FAMILIES, MEAN
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from natgrad.families import gaussian
from natgrad.families.gaussian_charts import deviation_chart, moment_chart
from natgrad.geometry import connections, levi_civita, retractions

HARSH = np.array([[40.0, -7.0], [-7.0, -90.0]])  # far outside what 1 + M keeps positive


def assert_close(left, right, tolerance=1e-8):
    np.testing.assert_allclose(np.asarray(left), np.asarray(right), rtol=tolerance, atol=tolerance)


def geodesic(fisher, start, velocity):
    """The end, after time one, of x'' = -Gamma(x', x') by integration."""

    @jax.jit
    def acceleration(x, v):
        slope = jax.jacfwd(fisher)(x)  # [i, j, k] = d_k g_ij
        lowered = jnp.einsum("ijk,j,k->i", slope, v, v) - jnp.einsum("jki,j,k->i", slope, v, v) / 2
        return -jnp.linalg.solve(fisher(x), lowered)

    def field(_, state):
        x, v = np.split(state, 2)
        return np.concatenate([v, np.asarray(acceleration(x, v))])

    found = solve_ivp(field, (0, 1), np.concatenate([start, velocity]), rtol=1e-10, atol=1e-10)
    return found.y[: len(start), -1]


def test_gaussian_exponential_solves_the_geodesic_equation():
    used = moment_chart(gaussian.full(2))
    drift, spread = jnp.array([0.8, 0.3]), jnp.array([[0.4, 0.5], [0.5, -0.6]])
    mean, covariance = levi_civita.gaussian_exponential((MEAN, COVARIANCE), (drift, spread))
    start = np.array([0.3, -0.7, 1.0, 2.0, -0.5])
    velocity = np.array([0.8, 0.3, 0.4, -0.6, 0.5])
    end = geodesic(used.fisher, start, velocity)
    assert_close([*mean, covariance[0, 0], covariance[1, 1], covariance[0, 1]], end, 1e-6)


@pytest.mark.slow
def test_circles_and_spheres_solve_the_geodesic_equation():
    family, theta = FAMILIES["independence"]
    eta, velocity = family.expectation(theta), jnp.array([0.2, 0.1, -0.3])
    assert_close(
        levi_civita.circle_exponential(eta, velocity),
        geodesic(family.expectation_fisher, eta, velocity),
        1e-6,
    )
    family, theta = FAMILIES["categorical"]
    eta, velocity = family.expectation(theta), jnp.array([0.05, -0.02, 0.04])
    end = levi_civita.sphere_exponential(family.probabilities(eta), jnp.append(velocity, -velocity.sum()))
    assert_close(end[:-1], geodesic(family.expectation_fisher, eta, velocity), 1e-6)
    assert_close(end.sum(), 1.0, 1e-12)


def test_distances_are_lengths():
    fisher = deviation_chart(gaussian.diagonal_gaussian(1)).fisher
    start, velocity = jnp.array([0.4, 1.3]), jnp.array([0.5, -0.7])
    end = geodesic(fisher, start, velocity)
    assert_close(
        levi_civita.half_plane_distance(start, jnp.asarray(end)),
        levi_civita.speed(fisher(start), velocity),
        1e-6,
    )
    family, theta = FAMILIES["categorical"]
    chances = family.probabilities(family.expectation(theta))
    tangent = jnp.array([0.03, -0.05, 0.01, 0.01])
    length = jnp.sqrt(jnp.sum(tangent**2 / chances))
    assert_close(
        levi_civita.sphere_distance(chances, levi_civita.sphere_exponential(chances, tangent)), length, 1e-8
    )


def test_a_circle_ends_at_a_vertex():
    eta = levi_civita.circle_exponential(jnp.array([0.5, -0.5]), jnp.array([9.0, 0.1]))
    assert_close(eta[0], 1.0, 1e-12)
    assert -0.5 < eta[1] < 0
    left, right = jnp.array([0.1, -0.9]), jnp.array([0.8, 0.3])
    middle = levi_civita.circle_geodesic(left, right, 0.5)
    half = levi_civita.circle_distance(left, middle)
    assert_close(2 * half, levi_civita.circle_distance(left, right), 1e-12)


@pytest.mark.slow
def test_covariance_geodesic_has_constant_speed_and_right_ends():
    other = jnp.array([[3.0, 1.0], [1.0, 0.5]])
    path = functools.partial(levi_civita.covariance_geodesic, COVARIANCE, other)
    assert_close(path(0.0), COVARIANCE)
    assert_close(path(1.0), other)
    whole = levi_civita.covariance_distance(COVARIANCE, other)
    assert_close(levi_civita.covariance_distance(COVARIANCE, path(0.3)), 0.3 * whole)
    velocity = jax.jacfwd(path)(0.0)
    _, end = levi_civita.gaussian_exponential((MEAN, COVARIANCE), (jnp.zeros(2), velocity))
    assert_close(end, other)
    assert_close(retractions.exponential_definite(COVARIANCE, velocity), other)


@pytest.mark.parametrize("name", ["independence", "full"])
def test_flat_geodesics_are_straight_in_their_charts(name):
    family, left = FAMILIES[name]
    right = 0.7 * left + 0.1
    middle = connections.m_geodesic(family, left, right, 0.25)
    assert_close(
        family.expectation(middle),
        connections.m_exponential(
            family.expectation(left), family.expectation(right) - family.expectation(left), 0.25
        ),
    )
    assert_close(
        connections.e_geodesic(left, right, 0.25), connections.e_exponential(left, right - left, 0.25)
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_no_step_leaves_the_cone_however_long(scale):
    tangent = scale * jnp.asarray(HARSH)
    factor = jnp.linalg.cholesky(COVARIANCE)
    for matrix in (
        retractions.quadratic_definite(COVARIANCE, tangent),
        (lambda a: a @ a.T)(retractions.quadratic_factor(factor, tangent)),
    ):
        assert_close(matrix, matrix.T, 1e-9 * float(jnp.abs(matrix).max()))
        assert jnp.linalg.eigvalsh(matrix)[0] > 0


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3))
def test_exponential_and_quadratic_factors_are_positive(entries):
    a, b, c = entries
    tangent = jnp.array([[a, b], [b, c]])
    factor = jnp.linalg.cholesky(COVARIANCE)
    for move in (retractions.exponential_factor, retractions.quadratic_factor):
        moved = move(factor, tangent)
        assert jnp.linalg.det(moved) > 0
        assert jnp.linalg.eigvalsh(moved @ moved.T)[0] > 0


def test_retractions_agree_with_the_exponential_to_second_order():
    tangent = jnp.array([[0.6, -0.4], [-0.4, 0.2]])
    factor = jnp.linalg.cholesky(COVARIANCE)

    def gap(scale):
        exact = retractions.exponential_factor(factor, scale * tangent)
        return float(jnp.abs(retractions.quadratic_factor(factor, scale * tangent) - exact).max())

    assert 7 < gap(0.2) / gap(0.1) < 9  # third order: halving the step divides the gap by eight
    exact = retractions.exponential_definite(COVARIANCE, 1e-3 * tangent)
    assert_close(retractions.quadratic_definite(COVARIANCE, 1e-3 * tangent), exact, 1e-8)


def test_independence_step_keeps_its_velocity_and_reaches_no_vertex():
    eta, tangent = jnp.array([0.5, -0.9]), jnp.array([0.3, -0.2])
    velocity = jax.jacfwd(lambda t: retractions.independence_step(eta, t * tangent))(0.0)
    assert_close(velocity, tangent)
    assert jnp.all(jnp.abs(retractions.independence_step(eta, 5 * tangent)) < 1)
    mean, factor = retractions.gaussian_step(MEAN, jnp.eye(2), jnp.ones(2), jnp.zeros((2, 2)))
    assert_close(mean, MEAN + 1)
    assert_close(factor, jnp.eye(2))
