"""Machines as a kind: every negative phase and method trains, chains are carried, every command works."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natgrad
from natgrad import InputError, config
from natgrad.cli.main import main
from natgrad.core import Pace
from natgrad.data import load_settings
from natgrad.layers import generator
from natgrad.models.rbm.kind import KIND
from natgrad.models.rbm.machine import boltzmann
from natgrad.models.rbm.spec import Shape
from natgrad.models.rbm.trained import TrainedBoltzmann


@pytest.fixture(scope="module")
def binary(place):
    """Sixty images of 2 x 3 pixels, of two kinds."""
    rng = np.random.default_rng(0)
    chances = np.where(rng.random((60, 1, 1)) < 0.5, [[0.9, 0.9, 0.1], [0.9, 0.2, 0.1]], 0.5)
    np.save(place / "binary.npy", (rng.random((60, 2, 3)) < chances).astype(np.uint8))
    return str(place / "binary.npy")


@pytest.fixture(scope="module")
def real(place):
    """Sixty rows of four real numbers."""
    np.save(place / "real.npy", np.random.default_rng(0).normal(1, 1, (60, 4)))
    return str(place / "real.npy")


def trained(data, out, **settings):
    chosen = {"model": "rbm", "hidden": 3, "batch_size": 8, "epochs": 2, "chains": 10, "seed": 1}
    made = {name: value for name, value in (chosen | settings).items() if value is not None}
    return natgrad.train(data=data, out=out, **made)


@pytest.fixture(scope="module")
def run(binary, place):
    """A natural training with kept metrics and carried chains."""
    return trained(binary, place / "whole", epochs=4, refresh=3, optimizer="momentum", learning_rate=0.01)


def command(capsys, *words):
    """What a command prints with --json."""
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words), "--json"])
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.err
    return json.loads(printed.out)


def test_a_run_learns_and_says_how_well(run):
    first, last = run.trace[0], run.trace[-1]
    assert last["valid_loss"] == -last["valid_ll"]
    assert last["train_loss"] < first["valid_loss"] + 1
    assert {"test_ll", "test_ll_se", "log_z", "test_pseudo", "step_kl"} <= set(last)
    assert run.model.chains.shape == (3, 10)


def test_a_training_that_is_continued_is_the_same_bit_for_bit(run, binary, place):
    half = trained(binary, place / "half", refresh=3, optimizer="momentum", learning_rate=0.01)
    done = natgrad.resume(half.folder, epochs=4)
    for one, other in zip(*map(jax.tree.leaves, (done.model.parameters, run.model.parameters)), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(done.model.chains, run.model.chains)


@pytest.mark.slow
def test_chains_of_all_temperatures_are_continued_bit_for_bit(binary, place):
    settings = {"method": "plain", "negative": "tempering", "objective.temperatures": 3, "gibbs": 2}
    whole = trained(binary, place / "tempered", epochs=4, **settings)
    done = natgrad.resume(trained(binary, place / "half-tempered", **settings).folder, epochs=4)
    for one, other in zip(
        *map(jax.tree.leaves, (done.model.parameters, whole.model.parameters)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(done.model.chains, whole.model.chains)


@pytest.mark.slow
def test_a_whitened_training_is_continued_bit_for_bit_and_says_how_white_it_is(binary, place):
    """Chart and averages are part of the state; more than one chart is made, each by two decompositions."""
    settings = {"method": "eigen-whitening", "whitening.refresh": 3}
    whole = trained(binary, place / "white", epochs=4, **settings)
    half = trained(binary, place / "half-white", **settings)
    done = natgrad.resume(half.folder, epochs=4)
    for one, other in zip(
        *map(jax.tree.leaves, (done.model.parameters, whole.model.parameters)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    first, last = whole.trace[0], whole.trace[-1]
    assert last["white_distance"] < first["white_distance"]
    assert last["fisher_distance"] < first["fisher_distance"]
    assert last["valid_ll"] > first["valid_ll"]


CASES = {
    "cd": {"method": "plain", "negative": "cd", "gibbs": 2, "chains": None, "coding": "signed"},
    "tempering": {"method": "plain", "negative": "tempering", "centering": True, "objective.temperatures": 3},
    "exact": {"negative": "exact", "chains": None, "metric.adaptive": True, "metric.relative": True},
    "gaussian": {"visible": "gaussian", "method": "plain", "data.binarize": "real"},
    "penalty": {"method": "penalty", "objective.covariance": "all", "centering": True},
    "practical": {"method": "penalty", "objective.practical": True, "negative": "cd", "chains": None},
    "whitening": {"method": "whitening", "coding": "signed", "optimizer": "momentum"},
    "eigen": {"method": "eigen-whitening", "negative": "exact", "chains": None, "whitening.source": "data"},
    "blocks": {"solver": "blocks", "metric.kl_radius": 0.1, "metric.fisher": "marginal"},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.few(2)
def test_every_way_trains_a_step(name, binary, real):
    """Without a folder, since a program takes a second to compile."""
    settings = {"model": "rbm", "hidden": 3, "batch_size": 8, "chains": 10, "data": binary} | CASES[name]
    if name == "gaussian":
        settings["data"] = real
    chosen = config.resolve({key: value for key, value in settings.items() if value is not None})
    dataset = load_settings(chosen.data)
    problem = KIND.problem(generator.key(0), chosen, dataset)
    method, shape = problem.algorithm(None, Pace(10)), Shape.of(chosen, dataset)

    @jax.jit
    def first(rows):
        batch = problem.draw(generator.key(1), rows, jnp.arange(40), 0)
        fresh = KIND.fresh(generator.key(3), chosen, shape)
        return method.init(generator.key(2), fresh, batch), batch

    state, batch = first(problem.rows)
    after, info = jax.jit(method.step)(generator.key(4), state, batch)
    assert int(info.result) == 0
    assert float(jnp.abs(after.model.weight - state.model.weight).max()) > 0
    if name == "gaussian":
        assert np.isfinite(problem.measure(after)["test_ll"])
    if name in ("penalty", "practical"):
        assert float(info.diagnostics["penalty"]) > 0
        assert {"white_distance", "fisher_distance"} <= set(problem.measure(after))
    if name == "tempering":
        assert 0 < float(info.diagnostics["swap_rate"]) <= 1
        assert "chains" in problem.pictures(after)


def test_a_gaussian_machine_has_real_rows():
    model = TrainedBoltzmann(boltzmann(generator.key(0), (4, 3), gaussian=True))
    assert model.sample(5, turns=3).shape == (5, 4)
    with pytest.raises(InputError, match="a pseudo-likelihood needs Bernoulli units"):
        model.pseudo_log_likelihood(np.zeros((1, 4)))
    with pytest.raises(InputError, match="expected finite numbers"):
        model.log_likelihood(np.full((1, 4), np.nan))


def test_commands(run, capsys):
    judged = command(capsys, "evaluate", run.folder, "--rows", 5)
    assert judged["likelihood"] == "exact"
    assert judged["rows"] == 5
    assert command(capsys, "sample", run.folder, "--number", 4, "--turns", 3)["number"] == 4
    shown = command(capsys, "fisher", run.folder)
    assert shown["fisher"] == "exact"
    assert shown["parameters"] == 27
    assert (run.folder / "fisher.png").stat().st_size > 1000
    command(capsys, "report", run.folder)
    page = (run.folder / "report.html").read_text()
    for words in ("end of chains", "filters, longest first", "E[T T&#x27;]", "Fisher", "inverse of damping"):
        assert words in page
    (line,) = command(capsys, "runs", run.folder)["runs"]
    assert line["kind"] == "rbm"
    assert line["headline_value"] == run.summary["test_ll"]


def test_a_machine_in_a_file_is_judged(run, binary, tmp_path, capsys):
    file = run.model.save(tmp_path / "machine.npz")
    found = command(capsys, "evaluate", file, "--model", "rbm", "--data", binary)
    again = command(capsys, "evaluate", run.folder)
    assert found["test_ll"] == again["test_ll"]
    other = TrainedBoltzmann.load(file)
    rows = np.eye(6)
    np.testing.assert_array_equal(other.transform(rows), run.model.transform(rows))
    assert other.reconstruct(rows).shape == (6, 6)


@pytest.mark.slow
def test_a_large_machine_is_annealed_from_both_ends():
    model = TrainedBoltzmann(boltzmann(generator.key(0), (24, 25), deviation=0.1))
    rows = np.random.default_rng(0).integers(0, 2, (20, 24))
    found = model.log_z(rows, chains=20, temperatures=50, turns=10)
    told = found.facts()
    assert told["likelihood"] == "annealed importance sampling"
    assert abs(told["log_z"] - told["log_z_reverse"]) < 1
    assert "warning" not in told
    with pytest.raises(InputError, match="got no rows; give rows of training data"):
        model.log_z()
    torn = TrainedBoltzmann(boltzmann(generator.key(0), (24, 25), deviation=4.0))
    with pytest.warns(UserWarning, match="log Z is not reliable.*or in Python temperatures=N"):
        torn.log_likelihood(rows, chains=20, temperatures=3, turns=10)
    with pytest.raises(InputError, match="chains: expected at least 1, got 0"):
        model.log_z(rows, chains=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"data.binarize": "real"}, "Bernoulli units are 0 or 1.*--visible gaussian"),
        ({"visible": "gaussian"}, "Gaussian units are real.*--data.binarize real"),
        ({"chains": 0}, "objective.chains: expected a number greater than 0, got 0"),
        ({"negative": "cd", "chains": 5}, "objective.chains is for --negative pcd or tempering"),
        ({"negative": "exact", "gibbs": 2}, "objective.gibbs is for --negative cd or pcd or tempering"),
        ({"negative": "exact", "metric.source": "samples"}, "needs samples of the machine"),
        (
            {"metric.source": "exact", "metric.solver": "dual"},
            "space of samples, got a Fisher that is enumerated",
        ),
        ({"data": "digits", "negative": "exact", "method": "plain", "hidden": 30}, "at most 22 units"),
        ({"data": "digits", "negative": "exact", "hidden": 20}, "at most 16 units, got 20"),
        ({"layers": (3,)}, "layers"),
        ({"method": "whitening", "centering": True}, "centering"),
        (
            {"method": "penalty", "objective.share": 0.3},
            "objective.share is for the practical penalty, got the exact one",
        ),
        (
            {"method": "penalty", "objective.practical": True, "objective.covariance": "vv"},
            "objective.practical adds.*got objective.covariance vv; use vh",
        ),
        ({"method": "penalty", "objective.gamma": 2}, "objective.gamma: expected a number"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_sentence(settings, words, binary, tmp_path):
    with pytest.raises(InputError, match=words):
        natgrad.train(out=tmp_path / "run", **{"data": binary, "model": "rbm", "batch_size": 8} | settings)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"weights": np.zeros((6, 3)), "visible_bias": np.zeros(6)}, "hidden_bias is not there"),
        (
            {"weights": np.zeros((3, 6)), "visible_bias": np.zeros(6), "hidden_bias": np.zeros(3)},
            "transpose or reshape",
        ),
        (
            {"weights": np.full((6, 3), np.nan), "visible_bias": np.zeros(6), "hidden_bias": np.zeros(3)},
            "expected finite numbers",
        ),
        (
            {
                "weights": np.zeros((6, 1)),
                "visible_bias": np.zeros(6),
                "hidden_bias": np.zeros(1),
                "coding": "x",
            },
            "expected binary or signed coding",
        ),
    ],
)
def test_a_file_that_is_no_machine(arrays, words, tmp_path):
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(InputError, match=words):
        TrainedBoltzmann.load(tmp_path / "wrong.npz")


def test_a_file_needs_data_that_fit(run, tmp_path):
    from natgrad.models.rbm.measure import evaluate_machine

    file = run.model.save(tmp_path / "machine.npz")
    with pytest.raises(InputError, match="say which rows to judge it by, with --data NAME"):
        evaluate_machine(file, None)
    with pytest.raises(InputError, match="6 visible units, the rows of digits have 64 values"):
        evaluate_machine(file, "digits")
    with pytest.raises(InputError, match="rows: expected at least 0"):
        evaluate_machine(run.folder, None, rows=-1)
    with pytest.raises(InputError, match=r"expected a \.npz file"):
        TrainedBoltzmann.load(tmp_path / "nothing.npz")
    with pytest.raises(InputError, match=r"got the HDF5 file .*; save its arrays .* with numpy.savez"):
        evaluate_machine(tmp_path / "machine.h5", "digits")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.zeros((2, 5)), "rows? of 6 values, got an array of shape"),
        (np.full((2, 6), 0.5), "expected rows of 0 and 1 for Bernoulli units"),
    ],
)
def test_rows_that_a_machine_cannot_have(run, rows, words):
    with pytest.raises(InputError, match=words):
        run.model.log_likelihood(rows)
