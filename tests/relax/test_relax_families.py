"""Families: charts round-trip, closed forms equal differentiation, tangents do not depend on charts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from distributions import CHARTS, COVARIANCE, FAMILIES, MEAN, charts, density, score_fisher, support

from natgrad.errors import InputError
from natgrad.families import chart, family, gaussian, gaussian_fisher
from natgrad.families.gaussian_charts import deviation_chart, moment_chart
from natgrad.families.independence import Independence, probability_chart
from natgrad.families.interactions import Interactions, gibbs, pairwise

SLOW = ("triple", "full 3", "full", "cycle", "chain", "pairwise")  # further structures, slow to compile
SLOW_CHARTS = [
    ("diagonal", "theta"),
    ("diagonal", "eta"),
    ("diagonal", "deviation"),
]  # Gaussians have the moments, and other families these


def _marked(name, *rest):
    slow = name in SLOW or (name, *rest) in SLOW_CHARTS
    return pytest.param(name, *rest, marks=pytest.mark.slow if slow else ())


each = pytest.mark.parametrize("name", [_marked(name) for name in FAMILIES])
each_chart = pytest.mark.parametrize(("name", "key"), [_marked(*pair) for pair in CHARTS])


def assert_close(left, right, tolerance=1e-8):
    np.testing.assert_allclose(np.asarray(left), np.asarray(right), rtol=tolerance, atol=tolerance)


@functools.cache
def facts(name):
    """What is compared for a family whatever its chart, computed by one compiled function."""
    member, theta = FAMILIES[name]

    def compute(theta):
        return {"potentials": potentials(member, theta), "distributions": distributions(member, theta)}

    return jax.jit(compute)(theta)


@functools.cache
def facts_in(name, key):
    """What is compared for a family in a chart."""
    return jax.jit(functools.partial(in_chart, name, key))(FAMILIES[name][1])


def in_chart(name, key, theta):
    member, used = FAMILIES[name][0], charts(name)[key]
    point = used.coordinates(theta)
    vector = jnp.linspace(-1.0, 2.0, member.parameters)
    probe = jnp.sin(jnp.arange(1.0, 1.0 + member.parameters))
    operator = chart.Fisher(member, used, point)
    gradient = jax.grad(lambda xi: jnp.tanh(member.expectation(used.natural(xi)) @ probe))(point)
    tangent = jnp.linalg.solve(used.fisher(point), gradient)
    slope = jax.grad(lambda t: jnp.tanh(member.expectation(t) @ probe))(theta)
    return {
        "round trip": (used.natural(point), theta),
        "scores": (used.fisher(point), score_fisher(name, key, point)),
        "operator": (operator.mv(vector), operator.dense() @ vector),
        "solve": (operator.solve(operator.mv(vector)), vector),
        "cheap natural gradient": (operator.solve(gradient), tangent),
        "tangent": (
            chart.push(used, chart.natural_chart(member), point, tangent),
            jnp.linalg.solve(member.natural_fisher(theta), slope),
        ),
        "change": (
            chart.transformed_fisher(chart.natural_chart(member), used, point),
            used.fisher(point),
        ),
    }


def potentials(member, theta):
    eta = member.expectation(theta)
    primal = jax.hessian(member.log_partition)(theta)
    dual = jax.jacfwd(jax.grad(member.negative_entropy))(eta)
    return {
        "eta": (eta, jax.grad(member.log_partition)(theta)),
        "theta": (jax.grad(member.negative_entropy)(eta), theta),
        "primal": (primal, member.natural_fisher(theta)),
        "dual": (dual, member.expectation_fisher(eta)),
        "inverse": (primal @ dual, jnp.eye(member.parameters)),
        "legendre": (family.legendre_gap(member, theta, eta), jnp.zeros(())),
    }


def distributions(member, theta):
    points, chances = support(member, theta)
    other = 0.8 * theta + 0.02
    density_there = density(member, theta, points)
    return {
        "eta": (member.expectation(theta), chances @ member.statistics(points)),
        "density": (family.log_density(member, theta, points), density_there),
        "entropy": (family.entropy(member, theta), -chances @ density_there),
        "divergence": (
            family.divergence(member, theta, other),
            chances @ (density_there - density(member, other, points)),
        ),
    }


@pytest.mark.few(3)
@each_chart
def test_charts_round_trip(name, key):
    assert_close(*facts_in(name, key)["round trip"], 1e-10)


@each_chart
@pytest.mark.parametrize("fact", ["scores", "operator", "solve", "change"])
def test_fisher_in_closed_form_is_the_mean_of_scores_and_the_operator(name, key, fact):
    assert_close(*facts_in(name, key)[fact])


@each_chart
def test_natural_gradient_is_the_same_tangent_in_every_chart(name, key):
    assert_close(*facts_in(name, key)["tangent"])
    assert_close(*facts_in(name, key)["cheap natural gradient"])


@pytest.mark.few(1)
@each
@pytest.mark.parametrize("fact", ["eta", "theta", "legendre"])
def test_potentials_are_dual(name, fact):
    assert_close(*facts(name)["potentials"][fact], 1e-10)


@each
@pytest.mark.parametrize("fact", ["primal", "dual", "inverse"])
def test_hessians_of_the_dual_potentials_are_inverse_and_are_the_fishers(name, fact):
    assert_close(*facts(name)["potentials"][fact])


@each
@pytest.mark.parametrize("fact", ["eta", "density", "entropy", "divergence"])
def test_expectation_density_entropy_and_divergence_are_exact_sums(name, fact):
    assert_close(*facts(name)["distributions"][fact], 1e-10)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["independence", "pairwise", "categorical", "full"])
def test_samples_have_the_expectations(name):
    member, theta = FAMILIES[name]
    assert_expected(member, theta, lambda key: member.sample(key, theta, 4000), jax.random.key(3))


def assert_expected(member, theta, sample, key):
    """The means of the statistics of samples are the expectations, within five standard errors."""

    @jax.jit
    def compute(key):
        found = member.statistics(sample(key))
        return found, member.expectation(theta), member.natural_fisher(theta)

    found, expected, fisher = (np.asarray(each) for each in compute(key))
    error = np.sqrt(np.diag(fisher) / len(found))
    assert (np.abs(found.mean(axis=0) - expected) < 5 * error).all()


def test_gaussian_expectations_have_plus_signs():
    assert_close(
        gaussian.full(2).expectation_of_moments(MEAN, COVARIANCE), [0.3, -0.7, 1.09, 2.49, -1.42], 1e-12
    )


def test_slides_blocks_at_the_point_where_their_cases_slip():
    theta_fisher = FAMILIES["full"][0].natural_fisher(FAMILIES["full"][1])
    assert_close(2 * theta_fisher[2, 4], 2 * theta_fisher[4, 2], 1e-12)
    alpha = moment_chart(gaussian.full(2)).fisher(jnp.array([0.3, -0.7, 1.0, 2.0, -0.5]))
    precision = jnp.linalg.inv(COVARIANCE)
    assert_close(alpha[2, 3], precision[0, 1] ** 2 / 2, 1e-12)  # half of what the printed case gives


@pytest.mark.parametrize("name", ["full", "diagonal"])
@pytest.mark.few(1)
def test_miller_gives_every_gaussian_chart(name):
    member, theta = FAMILIES[name]

    @jax.jit
    def compute(theta):
        eta = member.expectation(theta)
        return (
            (gaussian_fisher.miller(member.moments, theta), member.natural_fisher(theta)),
            (gaussian_fisher.miller(member.moments_of_expectation, eta), member.expectation_fisher(eta)),
        )

    for left, right in compute(theta):
        assert_close(left, right)


def test_one_gaussian_divergence_is_the_slides_formula():
    member, used = gaussian.diagonal_gaussian(1), deviation_chart(gaussian.diagonal_gaussian(1))
    (m, s), (n, t) = (0.3, 0.8), (-0.5, 1.7)
    expected = np.log(t / s) + (s**2 + (m - n) ** 2) / (2 * t**2) - 0.5
    found = family.divergence(member, used.natural(jnp.array([m, s])), used.natural(jnp.array([n, t])))
    assert_close(found, expected, 1e-12)


def test_duality_is_between_theta_and_eta_and_mu_has_twice_the_gradient():
    def value(mu):
        return -4 * mu[0] - 2 * mu[1] + 12 * mu[0] * mu[1]

    member, used = Independence(2), probability_chart(Independence(2))
    mu = jnp.array([0.2, 0.7])
    theta = used.natural(mu)
    gradient = jax.grad(lambda t: value(used.coordinates(t)))(theta)
    natural = chart.chart_natural_gradient(member, chart.natural_chart(member), theta, gradient)
    assert_close(natural, jax.grad(lambda eta: value((1 + eta) / 2))(member.expectation(theta)), 1e-12)
    assert_close(jax.grad(value)(mu), 2 * natural, 1e-12)


def test_missing_edges_are_zeros_of_the_precision_and_covariances_agree_on_edges():
    member, theta = FAMILIES["cycle"]
    given = 0.2 * np.ones((4, 4)) + np.diag(np.arange(1.0, 5.0))

    @jax.jit
    def compute(theta, given):
        eta = member.expectation_of_moments(jnp.ones(4), given)
        return member.moments(theta)[1], member.moments(member.natural(eta))[1]

    covariance, found = compute(theta, given)
    precision = np.linalg.inv(covariance)
    assert abs(precision[0, 2]) < 1e-12
    assert abs(precision[1, 3]) < 1e-12
    assert_close(found[member.rows, member.columns], given[member.rows, member.columns], 1e-10)


def test_gibbs_chains_have_the_exact_expectations():
    member, theta = FAMILIES["pairwise"]
    start = jnp.ones((3000, 3))
    assert_expected(member, theta, lambda key: gibbs(key, member, theta, start, 15), jax.random.key(0))


def test_a_large_field_is_sampled_by_gibbs():
    member = pairwise(20, [(i, i + 1) for i in range(19)])
    theta = jnp.concatenate([jnp.full(20, 0.2), jnp.full(19, 0.3)])
    points = jax.jit(lambda key: member.sample(key, theta, 4))(jax.random.key(0))
    assert set(np.unique(points)) <= {-1.0, 1.0}
    with pytest.raises(InputError, match="too many for 20 variables"):
        member.log_partition(theta)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Interactions(2, ((0,), (2,))), r"variables 0 to 1, got \(2,\)"),
        (lambda: Interactions(2, ((0, 1), (1, 0))), "got a repetition"),
        (lambda: gaussian.sparse(3, [(0, 3)]), "two different variables of 0 to 2"),
        (lambda: gaussian.sparse(3, [(0, 1)], zeros=[(1, 0)]), "both an edge and a zero"),
        (lambda: gaussian.sparse(3, [(0, 1)], zeros=[(2, 2)]), "is on the diagonal"),
        (lambda: moment_chart(gaussian.sparse(3, [(0, 1)])), "not free coordinates"),
        (lambda: deviation_chart(gaussian.full(2)), "diagonal family only"),
    ],
)
def test_wrong_structures_are_refused_in_one_sentence(make, message):
    with pytest.raises(InputError, match=message):
        make()
