"""Likelihoods against enumeration: exact ones to rounding, sampled ones within their own errors."""

from functools import cache
from itertools import pairwise, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import oracles
from cases import CODINGS, SIZES
from natgrad.errors import InputError
from natgrad.evaluate import weights
from natgrad.evaluate.weights import portion_sizes
from natgrad.layers.bernoulli import SIGNED, Layer
from natgrad.models.helmholtz import exact
from natgrad.models.helmholtz import likelihood as importance
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.machine import Helmholtz


@cache
def machine(sizes=(4, 3, 2), coding=SIGNED):
    """Recognition near enough to the posterior for well-behaved weights, far enough to matter."""
    return cases.machine(sizes, coding, spread=0.4)


def zeros(*sizes):
    pairs = list(pairwise(sizes))
    down = tuple(Layer(jnp.zeros((low, up)), jnp.zeros(low)) for low, up in pairs)
    up = tuple(Layer(jnp.zeros((up, low)), jnp.zeros(up)) for low, up in pairs)
    return Helmholtz(jnp.zeros(sizes[-1]), down, up)


@cache
def enumerated(sizes, coding):
    m = oracles.numpy_model(machine(sizes, coding))
    return np.array([oracles.log_likelihood(m, x) for x in oracles.all_states(sizes[0])])


def every_row(model):
    """All visible states as the model codes them, and their exact log-likelihoods."""
    on = jnp.asarray(np.array(oracles.all_states(model.sizes[0])).T)
    return model.coding.value(on, jnp.float64), enumerated(model.sizes, model.coding)


@pytest.mark.parametrize(
    ("coding", "sizes"),
    [
        ("signed", "three"),
        ("binary", "two"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in product(CODINGS, SIZES)
            if case not in (("signed", "three"), ("binary", "two"))
        ),
    ],
)
def test_exact_equals_the_sum_over_all_states(coding, sizes):
    model = machine(SIZES[sizes], CODINGS[coding])
    visible, expected = every_row(model)
    got = np.asarray(jax.jit(exact.log_likelihood)(model, visible))
    np.testing.assert_allclose(got, expected, atol=1e-10, rtol=0)
    assert np.exp(got).sum() == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("coding", CODINGS)
def test_divergence_is_the_sum_over_the_distribution(coding):
    model = machine(coding=CODINGS[coding])
    m = oracles.numpy_model(model)
    patterns = np.array([[0, 0, 1, 1], [1, 0, 1, 0], [1, 1, 1, 1]], np.uint8)
    distribution = np.array([0.5, 0.3, 0.2])
    terms = [
        p * (np.log(p) - oracles.log_likelihood(m, x)) for p, x in zip(distribution, patterns, strict=True)
    ]
    assert float(exact.data_divergence(model, patterns, distribution)) == pytest.approx(sum(terms), abs=1e-10)


def test_divergence_from_the_model_itself_is_zero():
    model = machine()
    states = np.array(oracles.all_states(4), np.uint8)
    distribution = np.exp(np.asarray(jax.jit(exact.log_likelihood)(model, every_row(model)[0])))
    assert float(exact.data_divergence(model, states, distribution)) == pytest.approx(0.0, abs=1e-10)


def test_patterns_of_no_probability_count_nothing():
    model = machine()
    patterns = np.array([[0, 0, 1, 1], [1, 0, 1, 0], [1, 1, 1, 1]], np.uint8)
    whole = exact.data_divergence(model, patterns[:2], np.array([0.6, 0.4]))
    assert float(exact.data_divergence(model, patterns, np.array([0.6, 0.4, 0.0]))) == pytest.approx(
        float(whole)
    )


@pytest.mark.parametrize(("sizes", "units"), [((4, 20, 5), 25), ((4, 25), 25), ((4, 2, 13, 12), 25)])
def test_machines_too_large_to_enumerate_are_refused(sizes, units):
    model = zeros(*sizes)
    with pytest.raises(InputError, match=f"at most 24 units together, got {units}; use the importance"):
        exact.log_likelihood(model, jnp.ones((4, 1)))


@pytest.mark.few(1)
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize(
    "sizes", ["two", *(pytest.param(n, marks=pytest.mark.slow) for n in ("one", "three"))]
)
def test_sampled_mean_is_within_its_error(coding, sizes):
    model = machine(SIZES[sizes], CODINGS[coding])
    visible, expected = every_row(model)
    got = importance.log_likelihood(jax.random.key(3), model, visible, samples=5000)
    assert abs(got.mean - expected.mean()) < 5 * got.mc_se
    assert got.mc_se < 0.02
    np.testing.assert_allclose(got.rows, expected, atol=0.3)


PORTIONS = [(7, 1e-9), (1, 64.0), (1001, 0.002)]
OTHERS = [case for case in product((1, 7, 1000, 1001), (1e-9, 0.002, 64.0)) if case not in PORTIONS]


@pytest.mark.parametrize(
    ("samples", "memory_mb"), [*PORTIONS, *(pytest.param(*case, marks=pytest.mark.slow) for case in OTHERS)]
)
@pytest.mark.few(1)
def test_chunks_change_nothing_about_correctness(samples, memory_mb):
    """Any number of samples in any portions: E[mean of weights] = p(x), averaged over many keys."""
    model = machine((3, 2))
    visible, expected = every_row(model)
    repeats = max(4, 4000 // samples) if memory_mb > 1e-6 else 4
    estimates = [
        importance.log_likelihood(key, model, visible, samples=samples, memory_mb=memory_mb).rows
        for key in jax.random.split(jax.random.key(5), min(repeats, 40))
    ]
    relative = np.exp(np.array(estimates) - expected).ravel()
    error = weight_spread(model, visible) / np.sqrt(samples * relative.size)
    assert abs(relative.mean() - 1) < 5 * error


def weight_spread(model, visible):
    """The root mean square, over rows, of the standard deviation of w / p(x), by enumeration."""
    m = oracles.numpy_model(model)
    variances = []
    for x in np.asarray(model.coding.on(visible)).T:
        log_p, hidden = oracles.log_likelihood(m, x), oracles.hidden_states(m)
        joint = [(oracles.log_joint(m, [x, *h]), oracles.log_recognition(m, [x, *h])) for h in hidden]
        variances.append(sum(np.exp(2 * (p - log_p) - q) for p, q in joint) - 1)
    return np.sqrt(np.mean(variances))


@pytest.mark.parametrize(("samples", "chunk"), [(7, 3), (6, 3), (2, 3)])
def test_exactly_the_samples_asked_for_are_summed(samples, chunk):
    """The same weights drawn apart: their mean, and the relative variance of that mean."""
    model, key = machine((3, 2)), jax.random.key(4)
    visible, _ = every_row(model)
    found = importance._running_sums(
        key, visible, model=model, samples=samples, power=1.0, chunk=chunk, kept=0
    )
    value, variance, *_ = weights.row_statistics(found, samples)
    turns = [jax.random.fold_in(key, turn) for turn in range(-(-samples // chunk))]
    weigh = jax.jit(lambda turn: helmholtz.log_weights(model, helmholtz.wake(turn, model, visible, chunk)))
    drawn = [weigh(turn) for turn in turns]
    drawn_weights = np.exp(np.concatenate(drawn, axis=1)[:, :samples])
    np.testing.assert_allclose(value, np.log(drawn_weights.mean(axis=1)), atol=1e-10)
    relative = drawn_weights.var(axis=1) / samples / drawn_weights.mean(axis=1) ** 2
    np.testing.assert_allclose(variance, relative, atol=1e-10)


def test_every_portion_draws_anew():
    model = machine((3, 2))
    visible = jnp.tile(every_row(model)[0][:, :1], (1, 501))
    got = importance.log_likelihood(jax.random.key(2), model, visible, samples=30)
    assert got.rows[0] != got.rows[500]


def test_every_chunk_draws_anew():
    """Many chunks must gain as much precision as one: the error falls with all samples, not one chunk's."""
    model = machine((3, 2))
    visible, expected = every_row(model)
    small = portion_sizes(sum(model.sizes), 8, 4096, 0.0005)[1]
    assert small < 64
    got = importance.log_likelihood(jax.random.key(0), model, visible, samples=4096, memory_mb=0.0005)
    assert np.abs(got.rows - expected).max() < 5 * weight_spread(model, visible) * 2 / np.sqrt(4096)


def test_portions_keep_to_the_memory():
    model = zeros(50, 20, 10)
    for memory in (0.01, 0.1, 1.0, 10.0):
        for samples in (1, 10, 5000):
            rows, chunk = portion_sizes(sum(model.sizes), 10_000, samples, memory)
            assert rows * chunk * 4 * 4 * 80 <= memory * 2**20
            assert 1 <= chunk <= samples
            assert rows >= 1


@pytest.mark.slow
def test_rows_are_kept_in_order_across_portions():
    model = machine((3, 2))
    visible, expected = every_row(model)
    many = jnp.tile(visible, (1, 70))[:, :501]  # two portions
    got = importance.log_likelihood(jax.random.key(2), model, many, samples=10_000)
    assert got.rows.shape == (501,)
    np.testing.assert_allclose(got.rows, np.tile(expected, 70)[:501], atol=0.3)


def test_se_is_the_error_over_rows():
    model = machine((3, 2))
    visible, _ = every_row(model)
    got = importance.log_likelihood(jax.random.key(2), model, visible, samples=50)
    assert got.se == pytest.approx(got.rows.std(ddof=1) / np.sqrt(8))
    assert got.mean == pytest.approx(got.rows.mean())
    assert got.samples == 50
    alone = importance.log_likelihood(jax.random.key(2), model, visible[:, :1], samples=50)
    assert np.isnan(alone.se)


@pytest.mark.slow
def test_mc_se_is_the_spread_over_seeds():
    model = machine()
    visible, _ = every_row(model)
    runs = [
        importance.log_likelihood(key, model, visible, samples=600)
        for key in jax.random.split(jax.random.key(8), 600)
    ]
    spread = np.std([run.mean for run in runs], ddof=1)
    claimed = np.sqrt(np.mean([run.mc_se**2 for run in runs]))
    assert claimed / spread == pytest.approx(1.0, abs=0.15)


def test_one_sample_has_no_sampling_error_to_tell():
    """The delta method sees no spread in a single weight: the figure is 0, never NaN."""
    model = machine((3, 2))
    visible, _ = every_row(model)
    assert importance.log_likelihood(jax.random.key(2), model, visible, samples=1).mc_se == 0.0


@pytest.mark.parametrize(
    ("memory_mb", "logit", "heavy"),
    [
        (0.01, 1.2, True),
        (64.0, 0.1, False),
        pytest.param(0.01, 0.1, False, marks=pytest.mark.slow),
        pytest.param(64.0, 1.2, True, marks=pytest.mark.slow),
    ],
)
@pytest.mark.few(1)
def test_tails_tell_where_the_sampling_error_is_too_small(logit, heavy, memory_mb):
    """Visible units are fair coins whatever the hidden ones are, so log p(x) = -6 log 2."""
    visible = jnp.ones((6, 40))
    got = importance.log_likelihood(
        jax.random.key(0), cases.apart(logit), visible, samples=1000, memory_mb=memory_mb
    )
    assert (abs(got.mean + 6 * np.log(2)) > 5 * got.mc_se) == heavy
    assert (got.doubtful > 0.9, got.doubtful < 0.05) == (heavy, not heavy)
    assert (got.effective_samples.mean() < 20) == heavy
    assert got.pareto_k.shape == got.effective_samples.shape == (40,)


@pytest.mark.slow
def test_tails_are_left_out_on_demand_and_change_no_number():
    visible = jnp.ones((6, 40))
    whole, quick = (
        importance.log_likelihood(jax.random.key(0), cases.apart(0.5), visible, samples=200, tails=tails)
        for tails in (True, False)
    )
    assert whole.pareto_k is not None
    assert quick.pareto_k is None
    np.testing.assert_array_equal(whole.rows, quick.rows)
    np.testing.assert_array_equal(whole.effective_samples, quick.effective_samples)


def test_exact_likelihood_says_when_the_states_do_not_fit():
    """One wide hidden layer under many pixels: few pairs, but too many logits."""
    model = zeros(784, 20)
    with pytest.raises(InputError, match="would hold 822,083,584 logits at once"):
        exact.log_likelihood(model, jnp.zeros((784, 1)))
