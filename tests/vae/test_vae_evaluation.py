"""Evaluation against quadrature and closed forms: the bound's parts, heavy weights, completions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from vae_cases import hermite, log_conditional, log_marginal, made, states

from natgrad import InputError
from natgrad.layers import generator
from natgrad.models.vae.inpainting import CompletionChain, moved
from natgrad.models.vae.likelihood import evidence_bound, importance_likelihood
from natgrad.models.vae.trained import TrainedVariational


def reconstructions(model, rows, nodes=40):
    """The mean and the variance of log p(x | z) under q(z | x), of every row, by quadrature."""
    grid, weights = hermite(model.latent, nodes)
    means, deviations = TrainedVariational(model, rows.shape[1]).encode(rows)
    found = []
    for row, mean, deviation in zip(rows, means, deviations, strict=True):
        seen = log_conditional(model, row[None], mean + deviation * grid)[0]
        found.append((seen @ weights, (seen - seen @ weights) ** 2 @ weights))
    return np.array(found).T


@pytest.mark.few(1)
@pytest.mark.parametrize(("memory_mb", "gaussian"), [(0.001, False), (64.0, True)])
def test_the_bound_and_its_parts_equal_quadrature(memory_mb, gaussian):
    """Whether rows and samples are taken one at a time or all at once; with as many samples as asked for."""
    model, samples = made(latent=2, gaussian=gaussian), 1001
    rows = states() if not gaussian else jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)))
    found = evidence_bound(generator.key(0), model, rows, samples=samples, memory_mb=memory_mb)
    mean, variance = reconstructions(model, rows)
    assert (np.abs(found.reconstruction - mean) < 5 * np.sqrt(variance / samples)).all()
    assert (np.sqrt(variance / samples) < 0.1 * np.abs(mean)).all()
    means, deviations = TrainedVariational(model, 3).encode(rows)
    closed = 0.5 * (means**2 + deviations**2 - 1).sum(axis=1) - np.log(deviations).sum(axis=1)
    np.testing.assert_allclose(found.divergence, closed, rtol=1e-10)
    np.testing.assert_allclose(found.rows, found.reconstruction - found.divergence)
    assert found.mean == pytest.approx(found.rows.mean())
    assert found.se == pytest.approx(found.rows.std(ddof=1) / np.sqrt(len(rows)))
    assert found.mean < log_marginal(model, rows).mean()


def test_weights_of_a_narrow_q_are_said_to_be_heavy():
    """The estimate is then off by many of its own errors; a wide q is silent and right."""
    narrow, wide = made(latent=2, wider=-4.0), made(latent=2, wider=1.5)
    exact = log_marginal(narrow, states())
    with pytest.warns(UserWarning, match="mc_se is not reliable, and the likelihood is likely to be too"):
        low = TrainedVariational(narrow, 3).log_likelihood(states(), samples=1000)
    assert low.heavy > 0.5
    assert exact.mean() - low.mean > 5 * low.mc_se
    good = TrainedVariational(wide, 3).log_likelihood(states(), samples=1000)
    assert good.heavy == 0
    assert abs(good.mean - log_marginal(wide, states()).mean()) < 5 * good.mc_se
    assert (good.effective_samples > 100).all()


@pytest.mark.slow
def test_few_samples_make_the_importance_weighted_bound():
    """Its mean over many rows rises to log p(x) with the number of samples."""
    model = made(latent=2, scale=2.0)
    rows, exact = jnp.tile(states(), (100, 1)), log_marginal(model, states()).mean()
    one, many = (
        importance_likelihood(generator.key(1), model, rows, samples=n, tails=False).mean for n in (1, 30)
    )
    elbo = evidence_bound(generator.key(1), model, rows, samples=30).mean
    assert one == pytest.approx(elbo, abs=0.2)
    assert one < many < exact + 0.02


HIDE = np.array([True, False, True])


def exact_completions(model, row, hide):
    """p(x_hidden | x_known) over all states, by quadrature."""
    fits = (np.asarray(states())[:, ~hide] == np.asarray(row)[~hide]).all(axis=1)
    chances = np.where(fits, np.exp(log_marginal(model, states())), 0)
    return chances / chances.sum()


def numbered(rows):
    return np.asarray(rows) @ np.array([4, 2, 1])


@pytest.mark.slow
def test_completions_follow_the_conditional_distribution():
    """|z| < 5 for every state of the hidden pixels, where these depend on the known one."""
    model, row, number = made(latent=2, scale=3.0), np.array([0.0, 1.0, 0.0]), 1500
    done = TrainedVariational(model, 3).inpaint(row[None], HIDE, number=number, steps=10, samples=3)
    found = np.bincount(numbered(done.samples[0]).astype(int), minlength=8) / number
    expected = exact_completions(model, row, HIDE)
    error = np.sqrt(expected * (1 - expected) / number)
    assert (np.abs(found - expected) <= 5 * error + 1e-12).all()
    other = exact_completions(model, 1 - row, HIDE)[[2, 3, 0, 1, 6, 7, 4, 5]]
    assert np.abs(other - expected).max() > 0.05
    assert 0.05 < done.moved[0] <= 1
    np.testing.assert_array_equal(done.samples[0][:, 1], 1)
    np.testing.assert_array_equal(done.means[0][:, 1], 1)


def test_a_move_keeps_the_conditional_distribution():
    """From exact draws of (x_hidden, z), one move leads to draws of the same distribution, |z| < 5."""
    model, number, rng = made(latent=1, scale=3.0), 20_000, np.random.default_rng(0)
    grid, weights = np.linspace(-6, 6, 2001)[:, None], np.exp(-0.5 * np.linspace(-6, 6, 2001) ** 2)
    means = TrainedVariational(model, 3).decode(grid)
    exact = weights * means[:, 1]  # p(z | x_known), the known pixel being on
    pick = rng.choice(len(grid), number, p=exact / exact.sum())
    rows = np.where(HIDE, rng.random((number, 3)) < means[pick], 1.0)
    start = CompletionChain(*map(jnp.asarray, (rows, grid[pick], means[pick], np.zeros(number, np.int32))))
    hide = jnp.broadcast_to(jnp.asarray(HIDE), rows.shape)
    end = jax.jit(lambda chain: moved(generator.key(0), model, chain, hide, samples=2))(start)
    assert 0.1 < np.asarray(end.moves).mean() < 0.95
    expected = exact_completions(model, [0.0, 1.0, 0.0], HIDE)
    found = np.bincount(numbered(end.visible).astype(int), minlength=8) / number
    assert (np.abs(found - expected) <= 5 * np.sqrt(expected / number)).all()
    for power in (1, 2):
        then, now = (np.asarray(chain.latent) ** power for chain in (start, end))
        assert abs(then.mean() - now.mean()) < 5 * (now - then).std() / np.sqrt(number)


@pytest.mark.slow
def test_completions_of_real_rows_have_the_conditional_mean():
    """Of a Gaussian model, by quadrature."""
    model, row = made(latent=2, gaussian=True, scale=2.0), np.array([0.3, -0.5, 0.8])
    done = TrainedVariational(model, 3).inpaint(row[None], HIDE, number=1500, steps=10, samples=5)
    grid, weights = hermite(2, 40)
    outputs = np.asarray(TrainedVariational(model, 3).decode(grid))
    variance = np.exp(-0.4)
    weights = weights * np.exp(-0.5 * (row[1] - outputs[:, 1]) ** 2 / variance)
    expected = weights @ outputs / weights.sum()
    drawn = done.samples[0]
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - expected)[HIDE] < 5 * error[HIDE]).all()
    assert np.abs(expected - hermite(2, 40)[1] @ outputs)[HIDE].max() > 0.02  # what is known matters


def test_mistakes_are_said():
    model, rows = TrainedVariational(made(latent=2), 3), np.zeros((2, 3))
    for wrong, message in {
        (4,): "expected a mask of 3 values",
        (3, 3): "expected a mask of 3 values",
    }.items():
        with pytest.raises(InputError, match=message):
            model.inpaint(rows, np.ones(wrong))
    with pytest.raises(InputError, match="there is nothing to draw"):
        model.inpaint(rows, np.zeros(3))
    with pytest.raises(InputError, match="steps: expected at least 1, got 0"):
        model.inpaint(rows, HIDE, steps=0)
    with pytest.raises(InputError, match="at least one row of 3 values"):
        model.encode(rows[:, 1:])
    with pytest.raises(InputError, match=r"expected values in \[0, 1\]"):
        model.encode(2 + rows)
    with pytest.raises(InputError, match="NaN or infinity"):
        model.encode(np.nan * rows)
    with pytest.raises(InputError, match="at least one row of 2 latent values"):
        model.decode(rows)
    with pytest.raises(InputError, match="expected finite latent values"):
        model.decode(np.full((1, 2), np.inf))
    for ask in (model.elbo, model.log_likelihood):
        with pytest.raises(InputError, match="samples: expected at least 1, got 0"):
            ask(rows, samples=0)
        with pytest.raises(InputError, match="memory_mb: expected a number greater than 0"):
            ask(rows, memory_mb=0)
    for ask in (model.sample, model.means):
        with pytest.raises(InputError, match="number: expected at least 1, got 0"):
            ask(0)
