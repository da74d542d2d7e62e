"""Log-weights in a stream against NumPy all at once, and the shapes of tails that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.evaluate import weights

ROWS = 3


def streamed(table, samples, chunk, kept):
    """The running sums of a table [sample, row], read `chunk` rows at a time."""
    beyond = -len(table) % chunk
    padded = jnp.asarray(np.pad(table, ((0, beyond), (0, 0)), constant_values=99.0))  # not to be counted
    draw = lambda turn: jax.lax.dynamic_slice_in_dim(padded, turn * chunk, chunk).T  # noqa: E731
    return jax.jit(lambda number: weights.streamed(draw, number, chunk=chunk, kept=kept))(samples)


def drawn(samples, spread=1.0, seed=0):
    return np.random.default_rng(seed).normal(-700, spread, (samples, ROWS))


@pytest.mark.parametrize(
    ("samples", "chunk", "kept"),
    [(200, 7, 64), (200, 64, 4), (200, 1, 3), (201, 300, 64), (5, 2, 0), (1, 1, 0)],
)
@pytest.mark.few(3)
def test_a_stream_tells_what_all_weights_at_once_tell(samples, chunk, kept):
    table = drawn(samples)
    found = streamed(table, samples, chunk, kept)
    relative = np.exp(table + 700)
    rows = weights.row_statistics(found._replace(largest=np.zeros((ROWS, 0))), samples)
    np.testing.assert_allclose(rows.log_mean, np.log(relative.mean(axis=0)) - 700, rtol=0, atol=1e-10)
    variance = relative.var(axis=0) / samples / relative.mean(axis=0) ** 2
    np.testing.assert_allclose(rows.variance, variance, rtol=0, atol=1e-10)
    effective = relative.sum(axis=0) ** 2 / (relative**2).sum(axis=0)
    np.testing.assert_allclose(rows.effective_samples, effective, rtol=1e-10)
    np.testing.assert_array_equal(found.largest, -np.sort(-table.T, axis=1)[:, :kept])


@pytest.mark.parametrize("samples", [121, 1000])
@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
@pytest.mark.few(2)
def test_the_shape_of_a_streamed_tail_is_that_of_all_weights(samples, spread):
    table = drawn(samples, spread)
    rows = weights.row_statistics(streamed(table, samples, 16, weights.kept_for(samples)), samples)
    expected = [naive_k(np.exp(row)) for row in (table - table.max(axis=0)).T]
    np.testing.assert_allclose(rows.pareto_k, expected, atol=1e-8)


def naive_k(values):
    """Pareto smoothing's k of all weights, step by step as it is published, without ties."""
    samples = len(values)
    length = int(np.ceil(min(samples / 5, 3 * samples**0.5)))
    ordered = np.sort(values)
    cutoff = ordered[-length - 1]
    above = [x - cutoff for x in ordered[-length:] if x > cutoff * np.exp(weights.SAME)]
    n, m = len(above), 30 + int(len(above) ** 0.5)
    quartile = above[int(n / 4 + 0.5) - 1]
    grid = [1 / above[-1] + (1 - (m / (j - 0.5)) ** 0.5) / 3 / quartile for j in range(1, m + 1)]
    shape = lambda b: sum(np.log(1 - b * x) for x in above) / n  # noqa: E731
    logs = [n * (np.log(-b / shape(b)) - shape(b) - 1) for b in grid]
    posterior = [1 / sum(np.exp(other - one) for other in logs) for one in logs]
    best = sum(b * p for b, p in zip(grid, posterior, strict=True))
    return (n * shape(best) + 5) / (n + 10)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("shape", [-0.4, 0.0, 0.3, 0.7, 1.5])
def test_the_shape_of_known_draws(shape, scale):
    uniform = np.random.default_rng(1).random(4000)
    standard = (uniform**-shape - 1) / shape if shape else -np.log(uniform)
    got = weights.generalized_pareto(scale * standard)
    assert got == pytest.approx(shape, abs=4 * (1 + shape) / np.sqrt(4000))


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.9, 1.5])
def test_the_shape_of_known_tails(shape):
    """Weights u^-k have exactly a Pareto tail of the shape k; ten observations draw it toward 1/2."""
    samples = 100_000
    table = -shape * np.log(np.random.default_rng(2).random((ROWS, samples)))
    length = weights.tail_length(samples)
    largest = -np.sort(-table, axis=1)[:, : length + 1]
    np.testing.assert_allclose(
        weights.pareto_k(largest, samples), shape, atol=4 * (1 + shape) / np.sqrt(length)
    )


def test_few_samples_have_no_tail_to_tell():
    assert weights.tail_length(120) == weights.kept_for(120) == 0
    assert weights.pareto_k(np.zeros((2, 0)), 120) is None
    assert weights.tail_length(121) == 25


@pytest.mark.parametrize("noise", [0.0, 1e-5])
def test_equal_weights_have_the_lightest_tail(noise):
    """Samples of a discrete variable repeat, up to rounding: that must not look like a tail."""
    largest = -np.sort(noise * np.random.default_rng(0).random((ROWS, 96)), axis=1)
    np.testing.assert_array_equal(weights.pareto_k(largest, 1000), -1.0)


@pytest.mark.parametrize("repeated", [5, 50, 90])
@pytest.mark.parametrize("noise", [0.0, 1e-5])
def test_repeated_weights_make_no_heavy_tail(repeated, noise):
    """Some weights twice as large as all others, which are equal up to rounding."""
    tail = np.concatenate([np.full(repeated, np.log(2.0)), np.zeros(96 - repeated)])
    tail = -np.sort(-tail - noise * np.random.default_rng(0).random(96))
    assert weights.pareto_k(tail[None], 1000)[0] < 0.5


def test_tails_beyond_all_numbers_are_heavy_and_broken_ones_are_not_told():
    steep = -np.cumsum(np.arange(96.0))
    assert weights.pareto_k(steep[None], 1000)[0] > 10
    assert np.isnan(weights.pareto_k(np.full((1, 96), np.nan), 1000)).all()
    assert np.isnan(weights.pareto_k(np.full((1, 96), -np.inf), 1000)).all()


def test_rows_are_doubtful_by_their_tails_or_by_few_effective_samples():
    effective, shapes = np.array([50.0, 9.0, 50.0, 9.0]), np.array([0.6, 0.6, 0.8, 0.8])
    rows = weights.RowStatistics(np.zeros(4), np.ones(4), effective, shapes)
    found = weights.likelihood(rows, 1000)
    assert (found.heavy, found.doubtful) == (0.5, 0.75)
    found = weights.likelihood(rows._replace(pareto_k=None), 100)
    assert (found.heavy, found.doubtful) == (None, 0.5)
