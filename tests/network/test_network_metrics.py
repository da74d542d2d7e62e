"""Every metric of a network against explicit Jacobians, to 1e-10."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from network_cases import (
    LAWS,
    heteroscedastic,
    inputs,
    jacobian,
    odd,
    odd_parameters,
    printed_metric,
    problem,
    row_gradients,
)

from natgrad.errors import InputError
from natgrad.metrics import curvature, empirical
from natgrad.models import outputs
from natgrad.objectives.supervised import Rows, Task, loss

KEY = jax.random.key(0)
close = lambda found, expected: np.testing.assert_allclose(  # noqa: E731
    found, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max()
)


def matrix(metric, task, parameters, rows, key=KEY):
    measured = lambda: curvature.dense(metric(key, task, parameters, rows), parameters)  # noqa: E731
    return np.asarray(jax.jit(measured)())


@pytest.mark.parametrize("chunk", [None, 2, 5, 64])
@pytest.mark.parametrize("name", LAWS)
def test_the_fisher_metric_is_the_printed_one(name, chunk):
    task, parameters, rows = problem(name)
    close(
        matrix(curvature.fisher(chunk=chunk), task, parameters, rows),
        printed_metric(name, task, parameters, rows),
    )


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("name", LAWS)
def test_gauss_newton_is_the_fisher_metric_of_these_laws(name, chunk):
    task, parameters, rows = problem(name)
    close(
        matrix(curvature.gauss_newton(chunk=chunk), task, parameters, rows),
        printed_metric(name, task, parameters, rows),
    )


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("name", LAWS)
def test_the_factor_squared_is_the_metric(name, chunk):
    task, parameters, rows = problem(name)
    for metric in (
        curvature.fisher(chunk=chunk),
        empirical.uncentred_covariance(chunk=chunk),
        empirical.centred_covariance(chunk=chunk),
        curvature.monte_carlo_fisher(3, chunk=chunk),
    ):
        operator = metric(KEY, task, parameters, rows)
        factor = np.asarray(operator.rows())
        assert factor.shape[0] == operator.samples
        close(factor.T @ factor, np.asarray(curvature.dense(operator, parameters)))


def test_a_law_of_ones_own_by_its_fisher():
    def network(p, x):
        return jnp.stack([odd(p, x), 0.3 * odd(p, x[:, ::-1])], axis=-1)

    task, parameters, rows = Task(network, heteroscedastic()), odd_parameters(), Rows(inputs())
    r = np.asarray(network(parameters, rows.inputs))
    j = jacobian(lambda p: network(p, rows.inputs), parameters)
    weight = np.stack([np.exp(-2 * r[..., 1]), np.full_like(r[..., 1], 2)], axis=-1)
    close(
        matrix(curvature.fisher(chunk=2), task, parameters, rows),
        np.einsum("rod,rodp,rodq->pq", weight, j, j) / 5,
    )


def test_a_law_of_ones_own_by_its_log_probability():
    poisson = outputs.natural(lambda r, t: outputs.per_row(t * r - jnp.exp(r) - jax.lax.lgamma(t + 1)))
    task, parameters, rows = Task(odd, poisson), odd_parameters(), Rows(inputs())
    j = jacobian(lambda p: odd(p, rows.inputs), parameters)
    rates = np.exp(np.asarray(odd(parameters, rows.inputs)))
    close(matrix(curvature.fisher(), task, parameters, rows), np.einsum("ro,rop,roq->pq", rates, j, j) / 5)


def test_a_law_over_a_few_values_by_enumeration():
    law = outputs.enumerated(LAWS["softmax"].log_prob, jnp.arange(3))
    task, parameters, rows = problem("softmax")
    close(
        matrix(curvature.fisher(), Task(task.network, law), parameters, rows),
        printed_metric("softmax", task, parameters, rows),
    )
    drawn = law.sample(KEY, jnp.log(jnp.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]) + 1e-30))
    np.testing.assert_array_equal(drawn, [1, 0])


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("name", LAWS)
def test_the_covariances_are_those_of_row_gradients(name, chunk):
    task, parameters, rows = problem(name)
    g = row_gradients(task, parameters, rows)
    close(matrix(empirical.uncentred_covariance(chunk=chunk), task, parameters, rows), g.T @ g / len(g))
    centred = g - g.mean(axis=0)
    close(
        matrix(empirical.centred_covariance(chunk=chunk), task, parameters, rows),
        centred.T @ centred / len(g),
    )


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("name", LAWS)
def test_the_hessian_is_the_second_derivative(name, chunk):
    task, parameters, rows = problem(name)
    flat, unravel = ravel_pytree(parameters)
    expected = np.asarray(jax.hessian(lambda p: loss(task, unravel(p), rows))(flat))
    close(matrix(curvature.hessian(chunk=chunk), task, parameters, rows), expected)


@pytest.mark.parametrize("name", LAWS)
def test_the_monte_carlo_metric_is_unbiased(name):
    task, parameters, rows = problem(name, rows=2)
    metric, draws = curvature.monte_carlo_fisher(2), 3000
    one = lambda k: curvature.dense(metric(k, task, parameters, rows), parameters)  # noqa: E731
    found = np.asarray(jax.jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(KEY, draws)))
    error = found.std(axis=0) / np.sqrt(draws)
    z = (found.mean(axis=0) - printed_metric(name, task, parameters, rows)) / np.maximum(error, 1e-12)
    assert np.abs(z).max() < 5
    assert np.median(error / np.abs(found.mean(axis=0))) < 0.1  # the test could see a wrong factor


def test_sampled_targets_are_the_same_in_every_product_and_in_every_chunking():
    task, parameters, rows = problem("softmax")
    whole = curvature.monte_carlo_fisher(2)(KEY, task, parameters, rows)
    close(whole.mv(parameters)["shared"], np.asarray(whole.mv(parameters)["shared"]))
    close(
        matrix(curvature.monte_carlo_fisher(2, chunk=2), task, parameters, rows),
        matrix(curvature.monte_carlo_fisher(2), task, parameters, rows),
    )


@pytest.mark.parametrize("name", LAWS)
def test_the_metric_is_the_curvature_of_the_divergence(name):
    """KL(p, p + step) - (1/2) step^T G step is of third order in the step."""
    task, parameters, rows = problem(name)
    flat, unravel = ravel_pytree(parameters)
    v = np.random.default_rng(5).normal(size=flat.size) / 4
    g = printed_metric(name, task, parameters, rows)
    sizes = 2.0 ** -np.arange(4, 9)
    remainder = [
        abs(divergence(name, task, parameters, unravel(flat + s * v), rows) - s**2 * v @ g @ v / 2)
        for s in sizes
    ]
    slope = np.polyfit(np.log(sizes), np.log(remainder), 1)[0]
    assert 2.8 < slope < 3.2


def divergence(name, task, before, after, rows):
    old, new = (np.asarray(task.network(p, rows.inputs)) for p in (before, after))
    if name == "linear":
        return float(((old - new) ** 2).sum(1).mean() / (2 * 0.7**2))
    if name == "softmax":
        return float(
            (jax.nn.softmax(old) * (jax.nn.log_softmax(old) - jax.nn.log_softmax(new))).sum(1).mean()
        )
    y, gap = jax.nn.sigmoid(old), jax.nn.softplus(new) - jax.nn.softplus(old)
    return float((y * (old - new) + gap).sum(1).mean())


def test_the_diagonal_of_the_covariance_exactly_and_by_signs():
    task, parameters, rows = problem("softmax")
    g = row_gradients(task, parameters, rows)
    exact = ravel_pytree(empirical.squared_gradients(chunk=2)(KEY, task, parameters, rows))[0]
    close(np.asarray(exact), (g**2).mean(axis=0))
    found = jax.vmap(lambda k: ravel_pytree(empirical.squared_sums()(k, task, parameters, rows))[0])(
        jax.random.split(KEY, 4000)
    )
    z = (found.mean(0) - exact) / (found.std(0) / np.sqrt(4000) + 1e-12)
    assert np.abs(z).max() < 5


def test_the_mean_diagonal_is_unbiased():
    task, parameters, rows = problem("sigmoid")
    operator = curvature.fisher()(KEY, task, parameters, rows)
    found = jax.vmap(lambda k: curvature.mean_diagonal(k, operator, parameters))(jax.random.split(KEY, 4000))
    expected = np.diag(printed_metric("sigmoid", task, parameters, rows)).mean()
    assert abs(found.mean() - expected) < 5 * found.std() / np.sqrt(4000)


def test_every_parameter_is_in_the_metric():
    task, parameters, rows = problem("softmax")
    found = matrix(curvature.fisher(), task, parameters, rows)
    assert found.shape[0] == ravel_pytree(parameters)[0].size
    assert (np.diag(found) > 0).all()


def test_unlabelled_rows_serve_the_metrics_that_draw_targets_themselves():
    task, parameters, rows = problem("softmax")
    unlabelled = Rows(rows.inputs)
    close(
        matrix(curvature.fisher(), task, parameters, unlabelled),
        matrix(curvature.fisher(), task, parameters, rows),
    )
    curvature.monte_carlo_fisher()(KEY, task, parameters, unlabelled)
    for metric in (curvature.gauss_newton(), curvature.hessian(), empirical.centred_covariance()):
        with pytest.raises(InputError, match="needs targets, but its rows are unlabelled; use fisher"):
            metric(KEY, task, parameters, unlabelled)


def test_the_root_of_every_law_squares_to_its_fisher():
    r = inputs(4, 3)
    for law in LAWS.values():
        for row in r:
            eye = jnp.eye(3)[:, None]
            root = np.asarray(jax.vmap(lambda w, law=law, row=row: law.root(row[None], w)[0])(eye)).T
            fisher = np.asarray(jax.vmap(lambda w, law=law, row=row: law.fisher(row[None], w)[0])(eye)).T
            close(root @ root.T, fisher)


def test_extreme_logits_give_finite_products():
    r, v = jnp.array([[800.0, -800.0, 0.0]]), jnp.ones((1, 3))
    for law in LAWS.values():
        assert np.isfinite(law.fisher(r, v)).all()
        assert np.isfinite(law.root(r, v)).all()


def test_metrics_without_what_they_need_say_so():
    task, parameters, rows = problem("softmax")
    with pytest.raises(InputError, match="a chunk needs at least one row, got 0"):
        curvature.fisher(chunk=0)(KEY, task, parameters, rows)
    with pytest.raises(InputError, match="at least one sample per row, got 0"):
        curvature.monte_carlo_fisher(0)
    silent = Task(task.network, task.law._replace(sample=None))
    with pytest.raises(InputError, match="needs a law with `sample`"):
        curvature.monte_carlo_fisher()(KEY, silent, parameters, rows)
    with pytest.raises(InputError, match="standard deviation and must be positive, got 0"):
        outputs.linear(0)
