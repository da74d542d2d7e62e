"""Known algorithms are special cases: one step equals the textbook's formula, computed here with loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from natgrad.families.interactions import pairwise
from natgrad.relax import bits, clouds, fields, weights
from natgrad.relax.strategy import Draws

SIZE, POPULATION = 3, 8
rng = np.random.default_rng(0)
MEAN, FACTOR = rng.normal(size=SIZE), np.tril(rng.normal(size=(SIZE, SIZE))) + 2 * np.eye(SIZE)
VALUES = rng.permutation(np.arange(POPULATION, dtype=float)) ** 2


def assert_close(left, right, tolerance=1e-10):
    np.testing.assert_allclose(np.asarray(left), np.asarray(right), rtol=tolerance, atol=tolerance)


def drawn(strategy):
    return jax.jit(strategy.ask)(jax.random.key(1), strategy.init())


def after_telling(strategy, draws, values=VALUES):
    return jax.jit(strategy.tell)(strategy.init(), draws, jnp.asarray(values))


def by_rank(utilities, values=VALUES):
    found = np.empty(len(values))
    found[np.argsort(values)] = utilities
    return found


def test_ties_share_their_weights_and_nan_ranks_last():
    utilities = np.array([4.0, 2.0, 1.0, 0.0])
    assert_close(weights.shared_by_rank(jnp.array([7.0, 3.0, 7.0, 1.0]), utilities), [0.5, 2, 0.5, 4])
    assert_close(weights.shared_by_rank(jnp.array([np.nan, 3.0, 9.0, np.nan]), utilities), [0.5, 4, 2, 0.5])


def test_raw_weights_are_free_of_units_and_ignore_nan():
    values = jnp.array([1.0, 2.0, 6.0, np.nan])
    found = weights.standardized(values)
    assert_close(found, weights.standardized(10 * values - 3))
    assert_close(found.sum(), 0.0)
    assert found[3] == 0 < found[0]
    assert_close(weights.standardized(jnp.ones(3)), np.zeros(3))


def test_xnes_is_its_textbook_update():
    strategy = clouds.exponential_natural(POPULATION, clouds.first_cloud(MEAN, FACTOR))
    draws = drawn(strategy)
    after = after_telling(strategy, draws)
    utilities = np.maximum(0, np.log(POPULATION / 2 + 1) - np.log(np.arange(1, POPULATION + 1)))
    weight = by_rank(utilities / utilities.sum() - 1 / POPULATION)
    rate = (9 + 3 * np.log(SIZE)) / (5 * SIZE * np.sqrt(SIZE))
    scale = np.abs(np.linalg.det(FACTOR)) ** (1 / SIZE)
    shape = FACTOR / scale
    slope, curvature = np.zeros(SIZE), np.zeros((SIZE, SIZE))
    for w, z in zip(weight, np.asarray(draws.origin), strict=True):
        slope += w * z
        curvature += w * (np.outer(z, z) - np.eye(SIZE))
    trace = np.trace(curvature) / SIZE
    mean = MEAN + scale * shape @ slope
    scale *= np.exp(rate / 2 * trace)
    shape = shape @ expm(rate / 2 * (curvature - trace * np.eye(SIZE)))
    assert_close(after.mean, mean)
    assert_close(after.scale * after.factor, scale * shape)


def test_rank_mu_is_its_textbook_update():
    strategy = clouds.rank_mu(POPULATION, clouds.first_cloud(MEAN, FACTOR), rate=0.3)
    draws = drawn(strategy)
    after = after_telling(strategy, draws)
    raw = np.maximum(0, np.log((POPULATION + 1) / 2) - np.log(np.arange(1, POPULATION + 1)))
    weight = by_rank(raw / raw.sum())
    covariance, mean = 0.7 * FACTOR @ FACTOR.T, MEAN.copy()
    for w, x in zip(weight, np.asarray(draws.points), strict=True):
        covariance += 0.3 * w * np.outer(x - MEAN, x - MEAN)
        mean += w * (x - MEAN)
    assert_close(after.mean, mean)
    assert_close(after.scale**2 * after.factor @ after.factor.T, covariance)


def test_adaptive_is_rank_one_and_rank_mu_to_first_order():
    """The covariance moves as in CMA-ES, up to the square of the learning rates."""
    size, population = 30, 14
    strategy = clouds.adaptive_cloud(population, clouds.first_cloud(np.zeros(size), np.eye(size)))
    values = np.arange(population, dtype=float)
    draws = drawn(strategy)
    after = after_telling(strategy, draws, values)
    rates = clouds.learning_rates(population, size, diagonal=False)
    positive, negative, effective = weights.recombination(population)
    normal = np.asarray(draws.origin)
    path = np.sqrt(rates.path * (2 - rates.path) * effective) * positive @ normal
    weight = positive + rates.negative * negative * size / (normal**2).sum(axis=1)
    kept = 1 - rates.one - rates.rank * (1 - rates.negative)
    expected = kept * np.eye(size) + rates.one * np.outer(path, path)
    expected += rates.rank * (normal.T * weight) @ normal
    found = np.asarray(after.factor @ after.factor.T)
    tangent = expected - np.eye(size)
    assert_close(found, expected, 2 * np.linalg.norm(tangent, 2) ** 2)
    assert np.linalg.norm(found - expected) < 0.2 * np.linalg.norm(tangent)
    assert_close(after.path, path)


@pytest.mark.slow
def test_pbil_umda_and_the_compact_algorithm_are_their_textbook_updates():
    size = 20
    population = bits.pbil(10, size, rate=0.1, parents=2)
    draws = drawn(population)
    values = rng.permutation(10).astype(float)
    best = np.asarray(draws.points)[np.argsort(values)]
    assert_close(
        (after_telling(population, draws, values).eta + 1) / 2,
        0.9 * 0.5 + 0.1 * (best[:2].mean(axis=0) + 1) / 2,
    )
    marginal = bits.umda(10, size)
    draws = drawn(marginal)
    best = np.asarray(draws.points)[np.argsort(values)]
    chance = np.clip((best[:5].mean(axis=0) + 1) / 2, 1 / size, 1 - 1 / size)
    assert_close((after_telling(marginal, draws, values).eta + 1) / 2, chance)
    compact = bits.cga(size, steps=50)
    draws = drawn(compact)
    winner, loser = (np.asarray(draws.points) + 1) / 2
    assert_close((after_telling(compact, draws, [1.0, 2.0]).eta + 1) / 2, 0.5 + (winner - loser) / 50)


def test_adaptive_coins_move_by_the_fisher_length_and_stand_still_without_information():
    strategy = bits.adaptive_coins(8, 50)
    draws = drawn(strategy)
    after = after_telling(strategy, draws)
    assert_close(np.linalg.norm(after.eta), 1.0)  # at fair coins the Fisher matrix is the identity
    still = after_telling(strategy, draws, np.ones(8))
    assert_close(still.eta, np.zeros(50))


@pytest.mark.slow
def test_a_field_learns_the_function_that_its_statistics_span():
    family = pairwise(4, [(0, 1), (1, 2), (2, 3)])
    coefficients = jnp.array([0.5, -0.2, 0.3, 0.1, 1.0, -0.7, 0.4])
    strategy = fields.annealed(family, 40)
    draws = drawn(strategy)
    after = after_telling(strategy, draws, family.statistics(draws.points) @ coefficients + 2.0)
    direction = -after.theta / jnp.linalg.norm(after.theta)
    assert_close(direction, coefficients / jnp.linalg.norm(coefficients), 1e-4)


def test_sparse_steps_keep_the_zeros_of_the_precision():
    strategy = clouds.adaptive_cloud(POPULATION, clouds.first_cloud(MEAN, np.eye(SIZE)), ((0, 1), (1, 2)))
    after = after_telling(strategy, Draws(*drawn(strategy)))
    precision = np.linalg.inv(np.asarray(after.factor @ after.factor.T))
    assert abs(precision[0, 2]) < 1e-12
    assert abs(precision[0, 1]) > 1e-4


@pytest.mark.parametrize("diagonal", [False, True])
def test_learning_rates_leave_the_old_covariance_a_positive_share(diagonal):
    for size in (2, 10, 100):
        rates = clouds.learning_rates(4 + int(3 * np.log(size)), size, diagonal=diagonal)
        assert 0 < rates.one + rates.rank <= 1
        assert rates.negative >= 0
