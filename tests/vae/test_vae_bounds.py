"""Bounds and their gradients against quadrature, closed forms and finite differences, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from vae_cases import hermite, log_conditional, log_marginal, made, states

from natgrad.layers import generator
from natgrad.layers.bernoulli import Layer
from natgrad.models.vae.likelihood import importance_likelihood, mean_loss
from natgrad.models.vae.machine import (
    GENERATION,
    RECOGNITION,
    Variational,
    fantasies,
    latent_noise,
    log_prior,
    log_ratios,
    log_visible,
    recognized,
)
from natgrad.models.vae.objectives import (
    drawn_for,
    elbo_loss,
    importance_loss,
    one_lesson,
    sleep_loss,
    two_lessons,
    wake_loss,
)

LESSONS = {"elbo": elbo_loss, "importance": importance_loss, "sleep": sleep_loss, "wake": wake_loss}
MODELS = {
    "bernoulli": {"latent": 2, "hidden": (3, 4)},
    "gaussian": {"gaussian": True},
    "fixed deviation": {"gaussian": True, "deviation": 0.7},
}


def rows_for(model):
    if not model.gaussian:
        return states()
    return jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.few(2)
def test_parts_of_the_bound_equal_quadrature(name):
    """The divergence's closed form, log p(x | z) of given draws, and the bound below log p(x)."""
    model = made(**MODELS[name])
    rows = rows_for(model)
    grid, weights = hermite(model.latent, 40)

    @jax.jit
    def found(model):
        posterior = recognized(model, rows)
        latent = posterior.drawn(jnp.broadcast_to(jnp.asarray(grid), (len(rows), *grid.shape)))
        ratio = posterior.log_prob(latent) - log_prior(latent)
        return latent, posterior.divergence(), ratio, log_visible(model, rows, latent)

    latent, closed, ratio, seen = map(np.asarray, found(model))
    np.testing.assert_allclose(closed, ratio @ weights, atol=1e-10)
    for row in range(len(rows)):
        expected = log_conditional(model, rows[row : row + 1], latent[row])
        np.testing.assert_allclose(seen[row : row + 1], expected, atol=1e-12)
    bound = seen @ weights - closed
    exact = log_marginal(model, rows)
    assert (bound < exact).all()
    assert (exact - bound).max() < 20
    if not model.gaussian:
        np.testing.assert_allclose(np.exp(exact).sum(), 1, atol=1e-10)


def linear_gaussian(deviation):
    """A linear model whose posterior is diagonal, and the recognition network that is this posterior."""
    weight = np.array([[1.0, 0.5], [-0.5, 1.0], [2.0, 1.0], [-1.0, 2.0]]) * 0.7  # orthogonal columns
    bias = np.array([0.1, -0.2, 0.3, 0.4])
    variance = 1 / (1 + (weight**2).sum(axis=0) / deviation**2)
    back = variance[:, None] * weight.T / deviation**2
    up = Layer(
        jnp.asarray(np.concatenate([back, np.zeros((2, 4))])),
        jnp.asarray(np.concatenate([-back @ bias, np.log(variance)])),
    )
    model = Variational((up,), (Layer(jnp.asarray(weight), jnp.asarray(bias)),), deviation=deviation)
    return model, weight @ weight.T + deviation**2 * np.eye(4), bias


def test_the_bounds_are_the_likelihood_where_q_is_the_posterior():
    model, covariance, bias = linear_gaussian(0.8)
    rows = np.random.default_rng(1).normal(size=(6, 4))
    solved = np.linalg.solve(covariance, (rows - bias).T).T
    log_det = np.linalg.slogdet(2 * np.pi * covariance)[1]
    exact = -0.5 * ((rows - bias) * solved).sum(axis=1) - 0.5 * log_det
    noise = latent_noise(generator.key(0), model, jnp.asarray(rows), 7)
    ratios = jax.jit(log_ratios)(model, jnp.asarray(rows), noise)
    np.testing.assert_allclose(ratios, np.repeat(exact[:, None], 7, axis=1), atol=1e-10)
    found = importance_likelihood(generator.key(1), model, jnp.asarray(rows), samples=5)
    np.testing.assert_allclose(found.rows, exact, atol=1e-10)
    bound = -float(mean_loss(generator.key(2), importance_loss, model, jnp.asarray(rows), samples=3))
    np.testing.assert_allclose(bound, exact.mean(), atol=1e-10)


def along_a_line(value, model):
    """The derivative of a function of a model along a random line, by a central difference."""
    flat, unravel = ravel_pytree(model)
    line, step = np.random.default_rng(0).normal(size=flat.size), 1e-5
    value = jax.jit(value)
    slope = (value(unravel(flat + step * line)) - value(unravel(flat - step * line))) / (2 * step)
    return line, float(slope)


@pytest.mark.parametrize("name", ["elbo", "importance", "sleep"])
@pytest.mark.few(1)
def test_gradients_are_finite_differences_of_the_loss_of_fixed_draws(name):
    model = made(gaussian=True, hidden=(2,))
    draws = drawn_for(generator.key(3), model, rows_for(model), 3, dreaming=True)
    loss = lambda m: LESSONS[name](m, draws)[0]  # noqa: E731
    line, slope = along_a_line(loss, model)
    gradient = jax.jit(lambda m: ravel_pytree(jax.grad(loss)(m))[0])(model)
    np.testing.assert_allclose(gradient @ line, slope, rtol=1e-7)


def test_wake_gradients_are_those_of_weighted_draws_that_stay():
    """Of recognition by -log q less the mean weight; of generation it is the importance-weighted bound's."""
    model = made(hidden=(2,))

    @jax.jit
    def both(model):
        draws = drawn_for(generator.key(3), model, states(), 4, dreaming=False)
        latent = recognized(model, draws.rows).drawn(draws.noise)
        weights = jax.nn.softmax(log_ratios(model, draws.rows, draws.noise), axis=1)

        def oracle(m):
            above = ((weights - 0.25) * recognized(m, draws.rows).log_prob(latent)).sum()
            return -(above + (weights * log_visible(m, draws.rows, latent)).sum()) / 8

        woken = jax.grad(lambda m: wake_loss(m, draws)[0])(model)
        bound = jax.grad(lambda m: importance_loss(m, draws)[0])(model)
        return (woken.recognition, bound.generation), jax.grad(oracle)(model)

    found, expected = both(model)
    compare(found, (expected.recognition, expected.generation))


@pytest.mark.few(1)
@pytest.mark.parametrize(("generation", "recognition"), [("elbo", "elbo"), ("importance", "sleep")])
def test_each_network_has_the_gradient_of_its_own_lesson(generation, recognition):
    """And `revalue` is a loss with that gradient."""
    model, batch = made(gaussian=True, hidden=(2,)), jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)))
    objective = two_lessons(LESSONS[generation], LESSONS[recognition], 3)

    @jax.jit
    def found(model):
        estimate, _ = objective.estimate(generator.key(3), (), model, batch)
        draws = estimate.samples
        own = [jax.grad(lambda m, n=n: LESSONS[n](m, draws)[0])(model) for n in (generation, recognition)]
        value = LESSONS[generation](model, draws)[0]
        return estimate.gradient, jax.grad(objective.revalue)(model, draws), own, (estimate.value, value)

    gradient, again, own, values = found(model)
    compare(GENERATION.get(gradient), GENERATION.get(own[0]))
    compare(RECOGNITION.get(gradient), RECOGNITION.get(own[1]))
    compare(gradient, again)
    compare(*values)


def compare(one, other):
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-10, atol=1e-13)


def exact_elbo(model, rows):
    """The bound of every row by quadrature, as a function of the model."""
    grid, weights = (jnp.asarray(found) for found in hermite(model.latent, 40))
    noise = jnp.broadcast_to(grid, (len(rows), *grid.shape))
    posterior = recognized(model, rows)
    return log_visible(model, rows, posterior.drawn(noise)) @ weights - posterior.divergence()


def exact_joint(model):
    """Every row with nodes of the latent vector, [row, node], and p(x, z) of the pairs."""
    grid, weights = (jnp.asarray(found) for found in hermite(model.latent, 40))
    latent = jnp.broadcast_to(grid, (len(states()), *grid.shape))
    return latent, jnp.exp(log_visible(model, states(), latent)) * weights


def follows_the_posterior(model):
    latent, joint = exact_joint(model)
    weights = joint / joint.sum(axis=1, keepdims=True)
    return lambda m: -(weights * recognized(m, states()).log_prob(latent)).sum(axis=1).mean()


def follows_fantasies(model):
    latent, joint = exact_joint(model)
    return lambda m: -(joint * recognized(m, states()).log_prob(latent)).sum()


EXPECTATIONS = {
    "elbo": (lambda model: lambda m: -exact_elbo(m, states()).mean(), 1, 2000),
    "wake": (follows_the_posterior, 1000, 60),
    "sleep": (follows_fantasies, 4, 1000),
}


@pytest.mark.parametrize("name", EXPECTATIONS)
@pytest.mark.few(1)
def test_estimators_have_the_exact_gradient_as_their_mean(name):
    """Recognition's gradient over independent draws, |z| < 5 in every entry."""
    oracle, samples, number = EXPECTATIONS[name]
    model = made(hidden=(2,), wider=1.0)  # weights have a variance
    objective = two_lessons(elbo_loss, LESSONS[name], samples)

    def once(key):
        return ravel_pytree(objective.estimate(key, (), model, states())[0].gradient.recognition)[0]

    keys = jax.random.split(generator.key(5), number)
    found = np.asarray(jax.jit(lambda keys: jax.lax.map(once, keys, batch_size=10))(keys))
    expected = ravel_pytree(jax.jit(lambda m: jax.grad(oracle(model))(m))(model).recognition)[0]
    error = found.std(axis=0, ddof=1) / np.sqrt(number)
    assert (np.abs(found.mean(axis=0) - expected) < 5 * error).all()
    assert np.linalg.norm(expected) > 10 * np.linalg.norm(error)


@pytest.mark.slow
def test_the_importance_weighted_bound_rises_with_samples_and_is_a_bound():
    model = made(latent=2, scale=2.0)
    exact = log_marginal(model, states()).mean()
    rows = jnp.tile(states(), (200, 1))
    low, high = (
        -float(mean_loss(generator.key(1), importance_loss, model, rows, samples=s)) for s in (1, 50)
    )
    assert low < high < exact + 0.01
    assert exact - high < 0.2 * (exact - low)


def test_the_importance_likelihood_agrees_with_quadrature():
    model = made(latent=2)
    found = importance_likelihood(generator.key(1), model, states(), samples=4000)
    assert abs(found.mean - log_marginal(model, states()).mean()) < 5 * found.mc_se


def test_fantasies_follow_the_model():
    model = made(latent=2)
    rows, latent = jax.jit(fantasies, static_argnums=2)(generator.key(0), model, 20_000)
    number = np.bincount(np.asarray(rows @ jnp.array([4, 2, 1.0]), int), minlength=8)
    chances = np.exp(log_marginal(model, states()))
    assert (np.abs(number / 20_000 - chances) < 5 * np.sqrt(chances * (1 - chances) / 20_000)).all()
    np.testing.assert_allclose(np.asarray(latent).mean(axis=0), 0, atol=0.05)


def test_one_lesson_moves_its_network_alone():
    model, batch = made(hidden=(2,)), states()

    @jax.jit
    def found(model):
        estimate, _ = one_lesson(RECOGNITION, elbo_loss, 2).estimate(generator.key(3), (), model, batch)
        return estimate.gradient, jax.grad(lambda m: elbo_loss(m, estimate.samples)[0])(model)

    alone, whole = found(model)
    compare(alone.recognition, whole.recognition)
    assert all(not np.asarray(leaf).any() for leaf in jax.tree.leaves(alone.generation))
