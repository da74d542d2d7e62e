"""Every metric of a network against explicit Jacobians, to 1e-10."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from network_cases import (
    OUTPUTS,
    heteroscedastic,
    inputs,
    jacobian,
    measured_on,
    odd,
    odd_parameters,
    printed_metric,
    problem,
    row_gradients,
)

from natgrad.errors import InputError
from natgrad.layers import outputs
from natgrad.layers.task import Examples, Task, task_loss
from natgrad.metrics import curvature, empirical, probing

KEY = jax.random.key(0)
METRICS = {
    "fisher": curvature.fisher,
    "gauss_newton": curvature.gauss_newton,
    "hessian": curvature.hessian,
    "uncentered": empirical.uncentered_covariance,
    "centered": empirical.centered_covariance,
    "sampled": functools.partial(curvature.monte_carlo_fisher, 3),
}
AT_ONCE = {"whole": None, "pieces": 2}  # two does not divide the five rows
CASES = [
    (name, metric, size)
    for name in OUTPUTS
    for metric in METRICS
    for size in AT_ONCE
    if name == "softmax" or metric in ("fisher", "gauss_newton")
]
FACTORS = [
    ("fisher", "whole"),
    ("fisher", "pieces"),
    ("gauss_newton", "whole"),
    ("centered", "whole"),
    ("sampled", "pieces"),
]


def further(name, metric, size):
    """A case of what another case shows: pieces of a metric like others, or of another output."""
    return size == "pieces" and (name != "softmax" or metric in ("gauss_newton", "hessian", "uncentered"))


EQUATIONS = [
    pytest.param(*case, marks=pytest.mark.slow if further(*case) else ())
    for case in CASES
    if case[1] != "sampled"
]


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


def matrix(metric, task, parameters, rows, key=KEY):
    found = lambda p: probing.dense(measured_on(metric, task, p, rows, key))  # noqa: E731
    return np.asarray(jax.jit(found)(parameters))


@functools.cache
def metric_matrices(name, others=False):
    """Metrics of an output's problem as matrices, and their factors squared, in one program."""
    task, parameters, rows = problem(name)
    names = [case[1:] for case in CASES if case[0] == name and further(*case) == others]

    def everything(p):
        found = []
        for metric, size in names:
            chosen, squared = METRICS[metric](rows_at_once=AT_ONCE[size]), None
            operator = measured_on(chosen, task, p, rows, KEY)
            if (metric, size) in FACTORS:
                factor = operator.factor_rows()
                assert factor.shape[0] == operator.bind().samples
                squared = factor.T @ factor
            found.append((probing.dense(operator), squared))
        return found

    values = jax.jit(everything)(parameters)
    return dict(zip(names, jax.tree.map(np.asarray, values), strict=True))


@functools.cache
def expected(name):
    task, parameters, rows = problem(name)
    flat, unravel = ravel_pytree(parameters)
    printed = printed_metric(name, task, parameters, rows)
    if name != "softmax":
        return {"fisher": printed, "gauss_newton": printed}
    g = row_gradients(task, parameters, rows)
    return {
        "fisher": printed,
        "gauss_newton": printed,
        "hessian": np.asarray(jax.jit(jax.hessian(lambda p: task_loss(task, unravel(p), rows)))(flat)),
        "uncentered": g.T @ g / len(g),
        "centered": np.cov(g.T, bias=True),
    }


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "metric", "size"), EQUATIONS)
def test_metrics_are_what_their_equations_say(name, metric, size):
    """Gauss-Newton equals the printed Fisher metric for all three outputs [revisiting eq. 14-21]."""
    found = metric_matrices(name, further(name, metric, size))
    assert_close(found[metric, size][0], expected(name)[metric])


@pytest.mark.few(1)
@pytest.mark.parametrize("name", OUTPUTS)
def test_the_factor_squared_is_the_metric(name):
    found = [pair for place, pair in metric_matrices(name).items() if place in FACTORS]
    assert len(found) == (5 if name == "softmax" else 2)
    for dense, squared in found:
        assert_close(squared, dense)


def test_sampled_targets_do_not_depend_on_the_portions():
    assert_close(
        metric_matrices("softmax")["sampled", "pieces"][0], metric_matrices("softmax")["sampled", "whole"][0]
    )


def test_a_distribution_of_ones_own_by_its_fisher():
    def network(p, x):
        return jnp.stack([odd(p, x), 0.3 * odd(p, x[:, ::-1])], axis=-1)

    task, parameters, rows = Task(network, heteroscedastic()), odd_parameters(), Examples(inputs())
    r = network(parameters, rows.inputs)
    j = jax.jit(lambda p: jacobian(lambda p: network(p, rows.inputs), p))(parameters)
    weight = np.stack([np.exp(-2 * r[..., 1]), np.full_like(r[..., 1], 2)], axis=-1)
    assert_close(
        matrix(curvature.fisher(rows_at_once=2), task, parameters, rows),
        np.einsum("rod,rodp,rodq->pq", weight, j, j) / 5,
    )


def test_a_distribution_of_ones_own_by_its_log_probability():
    poisson = outputs.exponential_family(
        lambda r, t: outputs.per_row(t * r - jnp.exp(r) - jax.lax.lgamma(t + 1))
    )
    task, parameters, rows = Task(odd, poisson), odd_parameters(), Examples(inputs())
    j = jax.jit(lambda p: jacobian(lambda p: odd(p, rows.inputs), p))(parameters)
    rates = np.exp(np.asarray(odd(parameters, rows.inputs)))
    assert_close(
        matrix(curvature.fisher(), task, parameters, rows), np.einsum("ro,rop,roq->pq", rates, j, j) / 5
    )


@pytest.mark.slow
def test_a_distribution_over_a_few_values_by_enumeration():
    output = outputs.enumerated(OUTPUTS["softmax"].log_prob, jnp.arange(3))
    task, parameters, rows = problem("softmax")
    found = matrix(curvature.fisher(), Task(task.network, output), parameters, rows)
    assert_close(found, expected("softmax")["fisher"])
    drawn = output.sample(KEY, jnp.log(jnp.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]) + 1e-30))
    np.testing.assert_array_equal(drawn, [1, 0])


@pytest.mark.slow
def test_the_monte_carlo_metric_is_unbiased():
    metric, draws = curvature.monte_carlo_fisher(2), 2000

    def everything(key):
        one = lambda task, p, rows: probing.dense(measured_on(metric, task, p, rows, key))  # noqa: E731
        return [one(*problem(name, rows=2)) for name in OUTPUTS]

    found = jax.jit(jax.vmap(everything))(jax.random.split(KEY, draws))
    for name, matrices in zip(OUTPUTS, found, strict=True):
        error = matrices.std(axis=0) / np.sqrt(draws)
        z = (matrices.mean(axis=0) - printed_metric(name, *problem(name, rows=2))) / np.maximum(error, 1e-12)
        assert np.abs(z).max() < 5
        assert np.median(error / np.abs(matrices.mean(axis=0))) < 0.1  # the test could see a wrong factor


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_metric_is_the_curvature_of_the_divergence(name):
    """KL(p, p + step) - (1/2) step^T G step is of third order in the step."""
    task, parameters, rows = problem(name)
    flat, unravel = ravel_pytree(parameters)
    v = np.random.default_rng(5).normal(size=flat.size) / 4
    length = v @ expected(name)["fisher"] @ v
    sizes = 2.0 ** -np.arange(4, 9)
    moved = jax.jit(jax.vmap(lambda s: task.network(unravel(flat + s * v), rows.inputs)))(sizes)
    old = np.asarray(task.network(parameters, rows.inputs))
    remainder = [
        abs(divergence(name, old, new) - s**2 * length / 2) for s, new in zip(sizes, moved, strict=True)
    ]
    slope = np.polyfit(np.log(sizes), np.log(remainder), 1)[0]
    assert 2.8 < slope < 3.2


def divergence(name, old, new):
    if name == "linear":
        return float(((old - new) ** 2).sum(1).mean() / (2 * 0.7**2))
    if name == "softmax":
        return float(
            (jax.nn.softmax(old) * (jax.nn.log_softmax(old) - jax.nn.log_softmax(new))).sum(1).mean()
        )
    y, gap = jax.nn.sigmoid(old), jax.nn.softplus(new) - jax.nn.softplus(old)
    return float((y * (old - new) + gap).sum(1).mean())


@pytest.mark.slow
def test_diagonals_exactly_and_by_random_signs():
    task, parameters, rows = problem("softmax")

    def everything(key):
        flat = lambda t: ravel_pytree(t)[0]  # noqa: E731
        operator = measured_on(curvature.fisher(), task, parameters, rows, key)
        return flat(empirical.squared_sums(2)(key, task, parameters, rows)), operator.mean_diagonal(key)

    exact = jax.jit(
        lambda: ravel_pytree(empirical.squared_gradients(rows_at_once=2)(KEY, task, parameters, rows))[0]
    )()
    assert_close(np.asarray(exact), np.diag(expected("softmax")["uncentered"]))
    squares, means = jax.jit(jax.vmap(everything))(jax.random.split(KEY, 4000))
    for found, right in ((squares, exact), (means, np.diag(expected("softmax")["fisher"]).mean())):
        z = (found.mean(0) - right) / (found.std(0) / np.sqrt(4000) + 1e-12)
        assert np.abs(z).max() < 5


def test_every_parameter_is_in_the_metric():
    _, parameters, _ = problem("softmax")
    found = metric_matrices("softmax")["fisher", "whole"][0]
    assert found.shape[0] == ravel_pytree(parameters)[0].size
    assert (np.diag(found) > 0).all()


def test_unlabeled_rows_serve_the_metrics_that_draw_targets_themselves():
    task, parameters, rows = problem("softmax")
    unlabeled = Examples(rows.inputs)
    assert_close(matrix(curvature.fisher(), task, parameters, unlabeled), expected("softmax")["fisher"])
    sampled = lambda p: measured_on(curvature.monte_carlo_fisher(), task, p, unlabeled).bind().mv(p)  # noqa: E731
    jax.eval_shape(sampled, parameters)
    for metric in (curvature.gauss_newton(), curvature.hessian(), empirical.centered_covariance()):
        with pytest.raises(InputError, match="needs targets, but its rows are unlabeled; use fisher"):
            measured_on(metric, task, parameters, unlabeled)


def test_the_root_of_every_distribution_squares_to_its_fisher():
    eye = jnp.eye(3)[:, None]
    for output in OUTPUTS.values():
        both = jax.jit(
            lambda r, output=output: [
                jax.vmap(lambda w, f=f: f(r, w)[0])(eye) for f in (output.root, output.fisher)
            ]
        )
        for row in inputs(3, 3):
            root, fisher = (np.asarray(found).T for found in both(row[None]))
            assert_close(root @ root.T, fisher)


def test_extreme_logits_give_finite_products():
    r, v = jnp.array([[800.0, -800.0, 0.0]]), jnp.ones((1, 3))
    for output in OUTPUTS.values():
        assert np.isfinite(output.fisher(r, v)).all()
        assert np.isfinite(output.root(r, v)).all()


def test_metrics_without_what_they_need_say_so():
    task, parameters, rows = problem("softmax")
    with pytest.raises(InputError, match="rows_at_once: expected at least one row, got 0; give None"):
        measured_on(curvature.fisher(rows_at_once=0), task, parameters, rows)
    with pytest.raises(InputError, match="at least one sample per row, got 0"):
        curvature.monte_carlo_fisher(0)
    silent = Task(task.network, task.output._replace(sample=None))
    with pytest.raises(InputError, match="needs a distribution with `sample`"):
        measured_on(curvature.monte_carlo_fisher(), silent, parameters, rows)
    with pytest.raises(InputError, match="standard deviation and must be positive, got 0"):
        outputs.linear(0)
