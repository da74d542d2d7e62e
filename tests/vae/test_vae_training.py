"""Variational autoencoders as a kind: they train, continue bit for bit, and refuse what cannot be."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import natgrad
from natgrad import InputError, config
from natgrad.core import Pace
from natgrad.data import load_settings
from natgrad.layers import generator
from natgrad.metrics.probing import dense
from natgrad.models.vae import methods
from natgrad.models.vae.kind import HIDDEN_UNITS, KIND
from natgrad.models.vae.methods import NETWORKS
from natgrad.models.vae.spec import Shape

SMALL = {"model": "vae", "layers": (5, 4), "latent": 2, "batch_size": 8}


@pytest.fixture(scope="module", autouse=True)
def usual_promotion():
    """Adam's count is a whole number."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def binary(place):
    """Sixty images of 4 x 4 pixels, of two kinds."""
    rng = np.random.default_rng(0)
    chances = np.where(rng.random((60, 1, 1)) < 0.5, np.eye(4) * 0.9, 0.9 - np.eye(4) * 0.8)
    np.save(place / "binary.npy", (rng.random((60, 4, 4)) < chances).astype(np.uint8))
    return str(place / "binary.npy")


@pytest.fixture(scope="module")
def real(place):
    """Sixty rows of four real numbers."""
    rng = np.random.default_rng(0)
    np.save(place / "real.npy", rng.normal(1, 0.3, (60, 4)) + rng.normal(0, 1, (60, 1)))
    return str(place / "real.npy")


KEPT = SMALL | {"method": "two-step", "refresh": 3, "metric.gradient_decay": 0.5, "recognition.rate": 0.05}
KEPT |= {"objective.generation": "importance", "objective.growth": ((3, 4),)}


@pytest.fixture(scope="module")
def run(binary, place):
    """A training in two steps with kept metrics, averaged gradients, and more samples at its end."""
    return natgrad.train(data=binary, out=place / "whole", epochs=4, seed=1, **KEPT)


def test_a_run_learns_and_says_how_well(run):
    first, last = run.trace[0], run.trace[-1]
    assert last["valid_elbo"] > first["valid_elbo"]
    assert last["valid_elbo"] <= last["valid_ll"] + 0.1
    assert {"valid_loss", "test_ll", "test_ll_se", "mc_se", "latent_kl", "step_kl"} <= set(last)
    assert last["test_elbo"] == pytest.approx(last["reconstruction"] - last["latent_kl"])


def test_a_training_that_is_continued_is_the_same_bit_for_bit(run, binary, place):
    half = natgrad.train(data=binary, out=place / "half", epochs=2, seed=1, **KEPT)
    done = natgrad.resume(half.folder, epochs=4)
    for one, other in zip(*map(jax.tree.leaves, (done.model.parameters, run.model.parameters)), strict=True):
        np.testing.assert_array_equal(one, other)


REAL = {"visible": "gaussian", "data.binarize": "real"}
FILTERS = {"filters": (3,), "model.filter_width": 3}
DREAMING = {"objective.generation": "importance", "objective.recognition": "sleep", "samples": 3}
CASES = {
    "adam": {"layers": (5, 5), "activation": "softplus"} | DREAMING,
    "deep": {"layers": (5,) * 12, "activation": "softplus"} | DREAMING,
    "both": {"method": "natural", "optimizer": "momentum", "activation": "relu"} | FILTERS,
    "sample space": {"method": "two-step", "solver": "dual", "metric.kl_radius": 0.1, "optimizer": "sgd"}
    | REAL,
    "iterations": {"method": "two-step", "solver": "cg", "metric.adaptive": True, "optimizer": "sgd"}
    | FILTERS,
    "in turn": {"method": "two-step", "steps.order": "recognition-first", "steps.repeats": 2} | REAL,
    "factors": {"method": "two-step", "refresh": 2} | REAL,
    "factors of filters": {"method": "two-step"} | FILTERS,
    "factors of real filters": {"method": "two-step", "data.image_shape": (2, 2)}
    | {"filters": (3,), "model.filter_width": 1}
    | REAL,
    "diagonal": {"method": "two-step", "solver": "diagonal", "metric.latent": "prior"},
}


def problem_of(settings, binary, real):
    chosen = config.resolve(SMALL | {"data": real if "visible" in settings else binary} | settings)
    dataset = load_settings(chosen.data)
    fresh = jax.jit(lambda key: KIND.fresh(key, chosen, Shape.of(chosen, dataset)))
    return KIND.problem(generator.key(0), chosen, dataset), fresh(generator.key(3))


def one_step(problem, model, stage=0):
    """The state before and after a step, without a folder: a program takes a second to compile."""
    method = problem.algorithm(problem.stages[stage][1], Pace(10))
    batch = problem.draw(generator.key(1), problem.rows, jnp.arange(40), 0)
    state = method.init(generator.key(2), model, batch)
    return state, *jax.jit(method.step)(generator.key(4), state, batch)


def test_binary_values_are_held_to_their_frequencies_and_numbers_are_not(binary, real):
    """What a training that hardly learns is told by."""
    rows = np.load(binary).reshape(60, 16)
    found, _ = problem_of({"method": "plain"}, binary, real)
    most = sum(-p * np.log(p) - (1 - p) * np.log(1 - p) for p in rows.mean(axis=0))
    assert found.independent == pytest.approx(most, rel=0.1)  # of the training rows
    assert problem_of({"method": "plain"} | REAL, binary, real)[0].independent == np.inf


def flat(tree):
    return np.asarray(ravel_pytree(tree)[0])


def test_hidden_units_are_what_their_names_say():
    at = np.array([-1.0, 0.5])
    values = {"tanh": np.tanh(at), "relu": np.maximum(at, 0), "softplus": np.log1p(np.exp(at))}
    for name, expected in values.items():
        np.testing.assert_allclose(HIDDEN_UNITS[name][0](jnp.asarray(at)), expected, rtol=1e-6)


FURTHER = ("iterations", "diagonal", "factors of real filters")  # ways that other tests show as well
WAYS = [pytest.param(name, marks=pytest.mark.slow) if name in FURTHER else name for name in CASES]


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.few(1)
def test_every_way_trains_a_step(name, binary, real):
    state, after, info = one_step(*problem_of(CASES[name], binary, real))
    assert int(info.result) == 0
    assert np.isfinite(float(info.value))
    for leaf, was in zip(*map(jax.tree.leaves, (after.model, state.model)), strict=True):
        assert np.abs(np.asarray(leaf) - np.asarray(was)).max() > 0


def test_samples_grow_from_stage_to_stage(binary, real):
    settings = {"objective.generation": "importance", "objective.growth": ((2, 6),)}
    problem, model = problem_of(settings, binary, real)
    assert problem.stages == ((0, 1), (2, 6))
    assert problem.operations(6) == 6 * problem.operations(1)
    effective = [one_step(problem, model, stage)[2].diagnostics["effective_samples"] for stage in (0, 1)]
    assert float(effective[0]) == 1
    assert 1 < float(effective[1]) < 6


def test_two_steps_solve_the_system_of_each_network_with_its_own_damping_and_rate(binary, real):
    own = {"generation.rate": 0.3, "recognition.rate": 0.2, "generation.damping": 0.5, "layers": (3,)}
    settings = {"method": "two-step", "solver": "cg", "metric.iterations": 80, "metric.rows": 0} | own
    state, after, info = one_step(*problem_of(settings, binary, real))
    evidence = info.evidence
    for name, rate, damping in (("generation", 0.3, 0.5), ("recognition", 0.2, 0.2)):
        operator = evidence[name].factor.operator
        matrix = np.asarray(jax.jit(dense)(operator))
        flat = lambda tree, name=name: np.asarray(ravel_pytree(getattr(tree, name))[0])  # noqa: E731
        found, right = (flat(state.model) - flat(after.model)) / rate, flat(info.gradient)
        left = matrix @ found + damping * found - right
        assert np.linalg.norm(left) < 1.5e-4 * np.linalg.norm(right)  # where the iteration stops: 1e-4


def test_a_new_model_begins_with_the_means_of_the_data(binary, real):
    train = load_settings(config.resolve(SMALL | {"data": binary}).data).train
    rows, bias = np.asarray(train), problem_of({"method": "plain"}, binary, real)[1].generation[-1].bias
    means = (rows.sum(axis=0) + 1) / (len(rows) + 2)
    np.testing.assert_allclose(bias, np.log(means / (1 - means)), rtol=1e-4)


@pytest.mark.parametrize("order", ["generation-first", "recognition-first"])
@pytest.mark.few(1)
def test_steps_in_turn_are_told_of_both_networks(order, binary, real):
    """Each network's gradient is that of its own lesson, at the model that it finds."""
    settings = {"method": "two-step", "steps.order": order, "solver": "diagonal", "optimizer": "sgd"}
    problem, model = problem_of(settings | {"objective.recognition": "sleep"}, binary, real)
    state, after, info = one_step(problem, model)
    first, last = NETWORKS if order == "generation-first" else NETWORKS[::-1]
    rows = problem.draw(generator.key(1), problem.rows, jnp.arange(40), 0)
    key_main, key_turn = jax.random.split(generator.key(4))
    keys, found = {last: key_main, first: jax.random.fold_in(key_turn, 0)}, state.model
    for name in (first, last):
        key_estimate, _ = jax.random.split(keys[name])
        estimate = jax.jit(methods.lesson_of(Lessons, name, 1).estimate)(key_estimate, (), found, rows)[0]
        expected, told = (getattr(tree, name) for tree in (estimate.gradient, info.gradient))
        np.testing.assert_allclose(flat(told), flat(expected), rtol=1e-4, atol=1e-6)
        if name == "generation":
            np.testing.assert_allclose(info.value, estimate.value, rtol=1e-5)
        found = dataclasses.replace(found, **{name: getattr(after.model, name)})
    numbers = problem.algorithm(1, Pace(10)).describe(info)
    assert {f"{name}.condition" for name in NETWORKS} < set(numbers)


@pytest.mark.parametrize("resting", NETWORKS)
@pytest.mark.few(1)
def test_weights_of_a_network_shrink_at_its_own_rate_only(resting, binary, real):
    """In the turn of one network the weights of the other stay as they are."""
    own = {"optimizer.weight_decay": 1.0, f"{resting}.rate": 1e-12, "steps.order": "generation-first"}
    problem, model = problem_of({"method": "two-step", "optimizer": "sgd"} | own, binary, real)
    state, after, _ = one_step(problem, model)
    for name in NETWORKS:
        before, later = (flat(getattr(tree, name)) for tree in (state.model, after.model))
        assert (np.abs(later - before).max() < 1e-6) == (name == resting)


class Lessons:
    """Of the test above."""

    generation, recognition = "elbo", "sleep"


@pytest.mark.few(1)
def test_a_metric_of_the_prior_knows_nothing_of_recognition(binary, real):
    """Where the metric's latent vectors come from."""
    changed = {}
    for latent in ("prior", "recognition"):
        chosen = {"method": "two-step", "solver": "diagonal", "metric.latent": latent}
        problem, model = problem_of(chosen, binary, real)
        moved = dataclasses.replace(model, recognition=jax.tree.map(lambda leaf: leaf + 1, model.recognition))
        one, other = (
            one_step(problem, each)[2].evidence["generation"].factor.operator for each in (model, moved)
        )
        changed[latent] = np.abs(flat(one) - flat(other)).max()
    assert changed["prior"] == 0 < changed["recognition"]


@pytest.mark.few(1)
def test_each_network_keeps_its_metric_as_long_as_it_says(binary, real):
    own = {"generation.refresh": 3, "recognition.refresh": 2}
    problem, model = problem_of({"method": "two-step", "optimizer": "sgd"} | own, binary, real)
    method, (_, state, _) = problem.algorithm(1, Pace(10)), one_step(problem, model)
    state = jax.jit(method.step)(generator.key(4), state, jnp.ones((8, 16)))[0]
    ages = {name: int(state.direction[name].age) for name in NETWORKS}
    assert ages == {"generation": 2, "recognition": 0}


@pytest.mark.parametrize("lesson", ["elbo", "importance", "sleep"])
@pytest.mark.few(1)
def test_a_short_step_gains_what_adaptive_damping_predicts(lesson, binary, real):
    """In both networks, whatever the other one learns from."""
    settings = {"method": "two-step", "solver": "cg", "metric.adaptive": True, "optimizer": "sgd"}
    settings |= {"objective.generation": "importance", "objective.recognition": lesson, "samples": 3}
    info = one_step(*problem_of(settings | {"learning_rate": 0.003}, binary, real))[2]
    for name in NETWORKS:
        assert float(info.evidence[name].evidence.ratio) == pytest.approx(1, abs=0.05)


TWO = {"method": "two-step"}
SERVICES = [
    ({}, 20),
    ({"solver": "units"}, 1),
    ({"solver": "cg", "refresh": 5}, 5),
    ({"solver": "units", "metric.renewal_kl": 0.1, "optimizer": "sgd"}, 1000),
]


@pytest.mark.parametrize(("settings", "steps"), SERVICES)
def test_only_factors_of_layers_are_kept_unless_it_is_asked_for(settings, steps):
    chosen = config.resolve({"model": "vae"} | TWO | settings)
    assert chosen.metric.refresh == steps


REFUSED = {
    "steps.repeats counts steps of the network that moves first": TWO | {"steps.repeats": 2},
    "metric.solver units needs dense networks": TWO | {"solver": "units", "filters": (2,)},
    "decides its own steps": TWO | {"metric.adaptive": True, "optimizer": "adam"},
    "metric.adaptive needs losses whose gain": TWO
    | {"metric.adaptive": True, "optimizer": "sgd", "samples": 2, "objective.recognition": "wake"},
    "metric.adaptive needs one loss for one system": {"method": "natural", "metric.adaptive": True}
    | {"objective.recognition": "sleep"},
    "metric.latent is not a setting of the method natural": {"method": "natural", "metric.latent": "prior"},
    "model.deviation is that of Gaussian data": {"model.deviation": 0.5},
    "model.filter_width is the side of filters": {"model.filter_width": 3},
    "objective.generation importance weighs": {"objective.generation": "importance"},
    "objective.recognition wake weighs": {"objective.recognition": "wake"},
    "metric.damping is not a setting of the method plain of vae": {"damping": 0.1},
}


@pytest.mark.parametrize("message", REFUSED)
def test_settings_without_effect_are_refused(message):
    with pytest.raises(InputError, match=message):
        config.resolve({"model": "vae", "method": "plain"} | REFUSED[message])


def test_data_that_do_not_fit_are_refused(binary, real, tmp_path):
    train = lambda **settings: natgrad.train(out=tmp_path / "none", **SMALL | settings)  # noqa: E731
    with pytest.raises(InputError, match="Bernoulli units are 0 or 1"):
        train(data=real, **{"data.binarize": "real"})
    with pytest.raises(InputError, match="Gaussian units are real"):
        train(data=binary, visible="gaussian")
    with pytest.raises(InputError, match="filters need images"):
        train(data=real, filters=(2,), visible="gaussian", **{"data.binarize": "real"})
    with pytest.raises(InputError, match="too small for 2 banks of 5 x 5 filters"):
        train(data=binary, filters=(2, 2))
