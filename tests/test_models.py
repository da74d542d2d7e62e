"""The machine: its distributions sum to one, its draws follow them, its initial values are as configured."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import oracles
from cases import CODINGS, SIZES
from natgrad import config
from natgrad.layers import bernoulli, generator
from natgrad.layers.bernoulli import BINARY, SIGNED, Layer
from natgrad.models.helmholtz import kind
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.registry import Shape

log_prob = jax.jit(bernoulli.log_prob, static_argnames="reuse")
log_ratio = jax.jit(bernoulli.log_ratio, static_argnames="reuse")


@cache
def machine(sizes, coding):
    return cases.machine(sizes, coding)


@pytest.mark.parametrize("coding", [SIGNED, BINARY])
def test_codings_are_inverse(coding):
    on = jnp.array([0.0, 0.25, 1.0])
    np.testing.assert_allclose(coding.on(coding.value(on, jnp.float64)), on)
    assert coding.value(jnp.array([False, True]), jnp.float64).tolist() == [coding.low, 1.0]


@pytest.mark.parametrize("units", [1, 7, 101, *(pytest.param(n, marks=pytest.mark.slow) for n in (100, 250))])
def test_log_prob_equals_the_sum_over_units(units):
    rng = np.random.default_rng(units)
    logit = rng.normal(scale=4.0, size=(units, 2, 3))
    on = rng.integers(0, 2, logit.shape).astype(float)
    expected = [[oracles.log_bernoulli(logit[:, s, r], on[:, s, r]) for r in range(3)] for s in range(2)]
    for reuse in (False, True):
        got = log_prob(jnp.asarray(logit), jnp.asarray(on), reuse=reuse)
        np.testing.assert_allclose(got, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("reuse", [False, True])
def test_log_prob_is_exact_where_probabilities_vanish(reuse):
    """No clipping: a unit at odds with a logit of 800 costs 800 nats; one in agreement nothing."""
    logit = jnp.array([800.0, -800.0, 40.0]).reshape(3, 1, 1)
    on = jnp.array([0.0, 1.0, 1.0]).reshape(3, 1, 1)
    assert float(log_prob(logit, on, reuse=reuse)[0, 0]) == pytest.approx(-1600.0, abs=1e-9)
    small = log_prob(logit.astype(jnp.float32), on.astype(jnp.float32), reuse=reuse)
    assert float(small[0, 0]) == pytest.approx(-1600.0, abs=1e-3)


@pytest.mark.parametrize("reuse", [False, True])
def test_many_units_do_not_overflow_in_single_precision(reuse):
    logit = jnp.zeros((1000, 1, 1), jnp.float32)
    found = log_prob(logit, logit, reuse=reuse)
    assert float(found[0, 0]) == pytest.approx(-1000 * np.log(2), rel=1e-6)


@pytest.mark.parametrize("units", [7, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 40))])
@pytest.mark.parametrize("narrow", ["neither", "logit", "other", "both"])
@pytest.mark.few(2)
def test_log_ratio_is_the_difference_of_two(units, narrow):
    """With logits of every draw, of every row (recognition's first layer), and of none (the prior)."""
    rng = np.random.default_rng(units)
    shape = {"logit": (units, 1, 1), "other": (units, 2, 1), "neither": (units, 2, 3)}
    one, two = (
        jnp.asarray(rng.normal(scale=4.0, size=shape[name if narrow in (name, "both") else "neither"]))
        for name in ("logit", "other")
    )
    on = jnp.asarray(rng.integers(0, 2, (units, 2, 3)).astype(float))
    expected = log_prob(one, on) - log_prob(two, on)
    for reuse in (False, True):
        found = log_ratio(one, two, on, reuse=reuse)
        np.testing.assert_allclose(found, expected, atol=1e-10, rtol=0)


def test_layer_gradient_is_that_of_its_logits():
    """Against automatic differentiation, with inputs of their own and shared by all samples."""
    rng = np.random.default_rng(0)
    layer = Layer(jnp.asarray(rng.normal(size=(3, 4))), jnp.asarray(rng.normal(size=3)))
    for number, samples in ((5, 5), (5, 1), (65, 1)):
        residuals = jnp.asarray(rng.normal(size=(3, 2, number)))
        inputs = jnp.asarray(rng.normal(size=(4, 2, samples)))
        loss = lambda part, r=residuals, x=inputs: jnp.sum(r * bernoulli.logits(part, x))  # noqa: E731
        expected = jax.jit(jax.grad(loss))(layer)
        got = jax.jit(bernoulli.gradient)(inputs, residuals)
        np.testing.assert_allclose(got.weight, expected.weight, atol=1e-12)
        np.testing.assert_allclose(got.bias, expected.bias, atol=1e-12)


def test_programs_do_not_grow_with_the_samples():
    def size(samples):
        shapes = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4, 2, 1), (3, 2, samples)))
        return len(jax.make_jaxpr(bernoulli.gradient)(*shapes).eqns)

    assert size(640) == size(4) < 20


def numbered(layers):
    """The joint state of every draw as one number: [row, sample]."""
    bits = np.concatenate(layers)
    return np.tensordot(1 << np.arange(len(bits)), bits.astype(int), axes=1)


def state_number(state):
    return int(np.concatenate(state).astype(int) @ (1 << np.arange(sum(map(len, state)))))


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.few(2)
def test_dreams_follow_the_joint_distribution(coding, sizes):
    """Counts of every joint state against its enumerated probability, with the library's generator."""
    model = machine(SIZES[sizes], CODINGS[coding])
    m = oracles.numpy_model(model)
    number = 40_000
    drawn = jax.jit(helmholtz.dream, static_argnums=(2, 3))(generator.key(1), model, number // 4, 4)
    seen = numbered([model.coding.on(np.asarray(value)) for value in drawn.values]).ravel()
    distribution = np.zeros(2 ** sum(SIZES[sizes]))
    for x in oracles.all_states(SIZES[sizes][0]):
        for h in oracles.hidden_states(m):
            distribution[state_number([x, *h])] = np.exp(oracles.log_joint(m, [x, *h]))
    assert distribution.sum() == pytest.approx(1.0, abs=1e-10)
    z = (np.bincount(seen, minlength=distribution.size) - number * distribution) / np.sqrt(
        number * distribution * (1 - distribution)
    )
    assert np.abs(z[number * distribution > 20]).max() < 5


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.few(1)
def test_waking_draws_follow_recognition(coding, reuse):
    model = machine(SIZES["two"], CODINGS[coding])
    m = oracles.numpy_model(model)
    x = np.array([1.0, 0.0, 1.0, 1.0])
    visible = model.coding.value(jnp.asarray(x)[:, None], jnp.float64)
    number = 40_000
    wake = jax.jit(helmholtz.wake, static_argnames=("samples", "reuse"))
    drawn = wake(generator.key(2), model, visible, samples=number, reuse=reuse)
    seen = numbered([model.coding.on(np.asarray(value)) for value in drawn.values[1:]]).ravel()
    distribution = np.zeros(32)
    for h in oracles.hidden_states(m):
        distribution[state_number(h)] = np.exp(oracles.log_recognition(m, [x, *h]))
    z = (np.bincount(seen, minlength=32) - number * distribution) / np.sqrt(
        number * distribution * (1 - distribution)
    )
    assert np.abs(z[number * distribution > 20]).max() < 5


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("coding", CODINGS)
def test_a_draw_is_one_of_two_values_whatever_the_logit_and_the_chance(coding, dtype, reuse):
    """Infinite logits, and uniform numbers at both ends and where they meet a probability."""
    low, high = CODINGS[coding]
    half = np.finfo(dtype).eps / 2
    chances = np.asarray([0.0, 0.25, 0.5 - half, 0.5, 0.75, 1 - 2 * half], dtype)
    logits = np.asarray([-np.inf, -1e3, -90.0, 0.0, 90.0, 1e3, np.inf], dtype)
    uniform = np.broadcast_to(chances[None, :, None], (7, 6, 1))
    draw = jax.jit(lambda u, logit: bernoulli.draw(u, logit, CODINGS[coding], reuse=reuse)[..., 0])
    drawn = draw(uniform, logits[:, None, None])
    right = np.where(logits[:, None] < 0, low, np.where(logits[:, None] > 0, high, low))
    right = np.where((logits[:, None] == 0) & (chances < 0.5 - half), high, right)
    np.testing.assert_array_equal(drawn, right)


logits = jax.jit(bernoulli.logits)


def test_both_networks_evaluate_a_pass_by_the_values_in_it():
    """Logits recorded in either pass are those of its neighbors, whoever drew them."""
    model = machine(SIZES["two"], SIGNED)
    visible = jnp.ones((4, 2))
    for drawn in (
        jax.jit(helmholtz.wake, static_argnums=3)(jax.random.key(0), model, visible, 3),
        jax.jit(helmholtz.dream, static_argnums=(2, 3))(jax.random.key(0), model, 2, 3),
    ):
        for i, (down, up) in enumerate(zip(model.generation, model.recognition, strict=True)):
            below = logits(down, drawn.values[i + 1])
            above = logits(up, drawn.values[i])
            np.testing.assert_allclose(drawn.generation[i], below, atol=1e-12)
            np.testing.assert_allclose(drawn.recognition[i], above, atol=1e-12)
        np.testing.assert_array_equal(np.asarray(drawn.generation[-1])[:, 0, 0], model.prior)


def fresh(settings, visible):
    return jax.jit(lambda key: kind.fresh(key, settings, Shape(visible=visible)))(generator.key(0))


def test_fresh_machines_are_as_configured():
    settings = config.resolve(
        {"layers": (80, 30), "model.bias": -0.3, "model.prior_bias": 0.4, "coding": "binary"}
    )
    model = fresh(settings, 120)
    assert model.sizes == (120, 80, 30)
    assert model.coding == BINARY
    assert set(np.asarray(model.prior)) == {0.4}
    for layer in (*model.generation, *model.recognition):
        weight = np.asarray(layer.weight)
        units, inputs = weight.shape
        assert set(np.asarray(layer.bias)) == {-0.3}
        deviation = np.sqrt(2 / (units + inputs))  # Glorot's, of a normal cut at two deviations
        assert float(weight.std()) == pytest.approx(deviation, rel=0.05)
        assert float(np.abs(weight).max()) < 2.3 * deviation
        assert abs(float(weight.mean())) < 5 * deviation / np.sqrt(weight.size)


def test_default_biases_are_minus_one():
    model = fresh(config.resolve({"layers": (3, 2)}), 4)
    biases = [model.prior, *(layer.bias for layer in (*model.generation, *model.recognition))]
    assert {float(value) for bias in biases for value in np.asarray(bias)} == {-1.0}
    assert model.coding == SIGNED


@pytest.mark.parametrize("name", kind.WEIGHTS)
def test_initializers_have_their_variances(name):
    settings = config.resolve({"layers": (50,), "model.weights": name})
    layer = fresh(settings, 200).generation[0]
    variance = 1 / 50 if name == "lecun-normal" else 2 / 250
    assert np.asarray(layer.weight).var() == pytest.approx(variance, rel=0.06)
