"""log Z by enumeration and by annealing, pseudo-likelihoods; published machines."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from boltzmann_cases import CODINGS, Enumerated, all_states, made

from natgrad import InputError
from natgrad.layers import generator
from natgrad.layers.bernoulli import Layer
from natgrad.models.rbm import annealed, machine, partition, placement, pseudo
from natgrad.models.rbm.bridge import bridged

codings = pytest.mark.parametrize("coding", list(CODINGS))


@pytest.mark.parametrize(("coding", "sizes"), [("signed", (4, 3)), ("binary", (3, 5))])
def test_log_z_is_the_sum_over_all_states(coding, sizes, monkeypatch):
    model = made(coding, sizes)
    every = Enumerated(model, coding)
    if sizes == (3, 5):
        monkeypatch.setattr(partition, "_PORTION", 2 * max(sizes))  # two states at a time
    value, slope = jax.jit(jax.value_and_grad(partition.exact_log_z))(model)
    np.testing.assert_allclose(value, every.log_z, atol=1e-12)
    leaves = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(slope)])
    np.testing.assert_allclose(leaves, every.mean(), atol=1e-12)
    logs = jax.jit(partition.exact_log_likelihood)(model, jnp.asarray(every.below.T))
    np.testing.assert_allclose(logs, every.log_visible(), atol=1e-12)


def test_log_z_of_a_gaussian_machine_is_a_sum_over_hidden_states():
    model = made(sizes=(5, 3), gaussian=True)
    logs = jax.jit(machine.hidden_marginal)(model, jnp.asarray(all_states(3, "binary")))
    np.testing.assert_allclose(jax.jit(partition.exact_log_z)(model), np.logaddexp.reduce(np.asarray(logs)))


def test_too_many_units_to_enumerate_are_refused():
    with pytest.raises(InputError, match=r"at most 22 units on the smaller side.*30 visible and 30 hidden"):
        partition.exact_log_z(made(sizes=(30, 30)))


@codings
def test_pseudo_likelihood_is_the_product_of_conditionals(coding):
    model = made(coding)
    every = Enumerated(model, coding)
    table = {tuple(v): log for v, log in zip(every.below, every.log_visible(), strict=True)}
    low = CODINGS[coding].low

    def naive(v):
        total = 0.0
        for unit in range(len(v)):
            other = v.copy()
            other[unit] = low + 1 - v[unit]
            total += table[tuple(v)] - np.logaddexp(table[tuple(v)], table[tuple(other)])
        return total

    visible = jnp.asarray(every.below.T)
    found = jax.jit(pseudo.pseudo_log_likelihood)(model, visible)
    np.testing.assert_allclose(found, [naive(v) for v in every.below], atol=1e-12)
    many = jnp.repeat(visible, 500, axis=1)
    inputs = machine.hidden_inputs(model, many)
    some = jax.jit(pseudo.pseudo_estimate)(generator.key(0), model, many, inputs)
    means = np.asarray(some).reshape(-1, 500)
    error = means.std(axis=1) / np.sqrt(500)
    assert (np.abs(means.mean(axis=1) - found) < 5 * error + 1e-9).all()


@pytest.mark.slow
def test_the_proxy_of_a_gaussian_machine_is_a_density_of_rows():
    model = made(sizes=(2, 3), gaussian=True)
    visible = jnp.array([[0.3], [-1.0]])
    inputs = machine.hidden_inputs(model, visible)
    mean = machine.visible_inputs(model, model.hidden_units.mean(inputs))
    expected = -0.5 * ((visible - mean) ** 2).sum() - np.log(2 * np.pi)
    found = pseudo.proxy(generator.key(0), model, visible, inputs)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(("coding", "gaussian"), [("binary", False), ("signed", False), ("binary", True)])
@pytest.mark.few(1)
def test_annealing_states_an_error_that_holds(coding, gaussian):
    model = made(coding, (8, 6), scale=0.5, gaussian=gaussian)
    exact, base, good = float(jax.jit(partition.exact_log_z)(model)), 0.1 * jnp.arange(8.0), [0, 0, 0]
    times = annealed.equally_spaced(40, model)
    states = jnp.asarray(all_states(6, coding))

    @jax.jit
    def drawn(key):
        keys = jax.random.split(key)
        chosen = jax.random.categorical(keys[0], machine.hidden_marginal(model, states), shape=(50,))
        return model.visible_units.drawn(keys[1], machine.visible_inputs(model, states[:, chosen]))

    for seed in range(20):
        keys = jax.random.split(generator.key(seed), 3)
        found = annealed.anneal(keys[0], model, base, times, chains=50)
        back = annealed.anneal_back(keys[1], model, base, times, drawn(keys[2]))
        both = bridged(found, back)
        spans = [(r.low, r.high) for r in (found, back)] + [
            (both.log_z - 3 * both.se, both.log_z + 3 * both.se)
        ]
        good = [n + (low <= exact <= high) for n, (low, high) in zip(good, spans, strict=True)]
        assert both.se < min(0.3, found.se, back.se)
    assert min(good) >= 19


def test_the_bridge_of_gaussian_works_is_right_and_its_error_is_too():
    """Works of variance s about log Z - s / 2 and log Z + s / 2: both directions alone are far off."""
    rng, spread, found = np.random.default_rng(0), 9.0, []
    for _ in range(300):
        up = rng.normal(7 - spread / 2, 3, 80)
        down = rng.normal(7 + spread / 2, 3, 40)
        found.append(bridged(annealed.summed_up(up), annealed.summed_up(down)))
    values, errors = np.array(found).T
    assert abs(values.mean() - 7) < 5 * values.std() / np.sqrt(300)
    assert errors.mean() == pytest.approx(values.std(), rel=0.15)


def test_temperatures_are_placed_where_weights_vary():
    """Parts of variance 1 and 16, as of weights that vary in the second half: one move to four."""
    rng = np.random.default_rng(0)
    moves = rng.normal(0, 1, (1000, 4000)) * np.repeat([1.0, 4.0], 500)[:, None]
    times = placement.closer(np.linspace(0, 1, 1001), np.cumsum(moves, axis=0), 2000)
    assert (times[0], times[-1]) == (0, 1)
    assert (np.diff(times) > 0).all()
    share = (times < 0.5).sum() / 2000
    assert share == pytest.approx(0.9 * 0.2 + 0.1 * 0.5, abs=0.01)


def test_few_temperatures_are_placed_evenly_and_many_are_not():
    model = made(sizes=(4, 3), scale=1.0)
    place = lambda number: placement.placed_temperatures(  # noqa: E731
        generator.key(0), model, jnp.zeros(4), temperatures=number
    )
    np.testing.assert_allclose(place(100), np.linspace(0, 1, 101))
    many = np.asarray(place(1000))
    assert (len(many), many[0], many[-1]) == (1001, 0, 1)
    assert np.diff(many).max() > 1.2 * np.diff(many).min()


def test_estimates_that_disagree_are_found_out():
    forward, reverse = annealed.summed_up(np.array([1.0, 2.0])), annealed.summed_up(np.array([4.0, 5.0]))
    told = annealed.disagreement(forward, reverse)
    assert "3.00 nats apart; give more temperatures (--temperatures N, or in Python temp" in told
    assert annealed.disagreement(forward, forward) == ""


def test_annealing_refuses_nothing_to_do():
    with pytest.raises(InputError, match="temperatures: expected at least"):
        placement.placed_temperatures(generator.key(0), made(), jnp.zeros(4), temperatures=0)
    with pytest.raises(InputError, match="chains: expected at least"):
        annealed.anneal(generator.key(0), made(), jnp.zeros(4), annealed.equally_spaced(10, made()), chains=0)


def published(folder, name):
    with np.load(folder / "rbm" / name) as arrays:
        single = [jnp.asarray(arrays[key], jnp.float32) for key in ("weights", "hidden_bias", "visible_bias")]
    return machine.Boltzmann(Layer(single[0].T, single[1]), single[2])


def test_log_z_of_a_published_machine(shared_data, optimized):
    model = published(shared_data, "mnist14_20.npz")
    assert float(jax.jit(partition.exact_log_z)(model)) == pytest.approx(72.685839, abs=1e-4)


@pytest.mark.slow
def test_annealing_of_a_published_machine(shared_data, optimized):
    model = published(shared_data, "mnist28_500_cd25.npz")
    with np.load(shared_data / "binarized_mnist" / "binarized_mnist.npz") as arrays:
        rows = {name: np.unpackbits(arrays[name], axis=1, count=784) for name in ("train", "test")}
    bias = machine.bias_of(model.visible_units, rows["train"].mean(axis=0), len(rows["train"]))
    base = jnp.asarray(bias, jnp.float32)
    began = time.process_time(), time.perf_counter()
    times = placement.placed_temperatures(generator.key(1), model, base, temperatures=10_000)
    found = annealed.anneal(generator.key(0), model, base, times, chains=100)
    print(f"log Z {found.log_z:.3f} +- {found.se:.3f}", end=", ")
    print(f"{time.process_time() - began[0]:.1f} CPU s, {time.perf_counter() - began[1]:.1f} s")
    assert abs(found.log_z - 451.28) < 3 * found.se
    free = machine.negative_free_energy(model, jnp.asarray(rows["test"].T, jnp.float32))
    assert float(free.mean()) - found.log_z == pytest.approx(-86.34, abs=0.1 + 3 * found.se)
