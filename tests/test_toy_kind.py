"""A kind of model from another package: every command works on it, with no change under src/."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

import natgrad
from natgrad.cli.main import main
from natgrad.models import registry

HERE = __file__.rpartition("/")[0]


@pytest.fixture(autouse=True)
def plugged(tmp_path, monkeypatch):
    """The kind as an installed package would bring it: modules, and an entry point of `natgrad.models`."""
    found = tmp_path / "installed" / "toy-1.0.dist-info"
    found.mkdir(parents=True)
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (found / "entry_points.txt").write_text("[natgrad.models]\ntoy = toy_spec:SPEC\n")
    places = [str(found.parent), f"{HERE}/toy"]
    for place in places:
        monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("PYTHONPATH", ":".join(places), prepend=":")
    registry._plugged.cache_clear()
    yield
    registry._plugged.cache_clear()


@pytest.fixture(scope="module")
def data(place):
    """Fifty images of 2 x 3 pixels, most of them bright on the left and dark on the right."""
    chances = np.array([[0.9, 0.9, 0.1], [0.9, 0.2, 0.1]])
    np.save(place / "toy.npy", (np.random.default_rng(0).random((50, 2, 3)) < chances).astype(np.uint8))
    return str(place / "toy.npy")


@pytest.fixture
def run(tmp_path, data):
    """A short training of the toy kind."""
    made = natgrad.train(data=data, model="toy", epochs=4, batch_size=8, out=tmp_path / "run", seed=1)
    return made.folder


def command(capsys, *words):
    """What a command prints with --json."""
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words), "--json"])
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.err
    return json.loads(printed.out)


def test_train_learns_and_says_what_a_kind_says(tmp_path, data, capsys):
    words = ("--data", data, "--model", "toy", "--epochs", 20, "--batch-size", 8, "--chains", 30, "--quiet")
    found = command(capsys, "train", *words, "--out", tmp_path / "run", "--evaluation.every", 10)
    rows = [json.loads(line) for line in (tmp_path / "run/trace.jsonl").read_text().splitlines()]
    assert rows[-1]["valid_loss"] < rows[0]["valid_loss"]
    best = min(rows, key=lambda row: row["valid_loss"])
    assert (found["best_epoch"], found["test_loss"]) == (best["epoch"], best["test_loss"])
    assert "test_ll" not in found
    saved = tomllib.loads((tmp_path / "run/config.toml").read_text())
    assert saved["objective"] == {"chains": 30}
    assert set(saved) == {
        "format",
        "method",
        "seed",
        "data",
        "model",
        "objective",
        "rates",
        "training",
        "evaluation",
    }


@pytest.mark.slow
def test_parts_have_rates_of_their_own(tmp_path, data):
    import jax
    from toy_kind import KIND

    from natgrad import config
    from natgrad.core import Pace
    from natgrad.data import load as load_data
    from natgrad.models.registry import Shape

    settings = config.resolve({"model": "toy", "data": data, "batch_size": 8, "rates.left": 0.3})
    dataset = load_data(data)
    problem = KIND.problem(jax.random.key(0), settings, dataset)
    method = problem.algorithm(30, Pace(10))
    order = jax.numpy.arange(40)
    batch = problem.draw(jax.random.key(1), problem.rows, order, 0)
    model = KIND.fresh(jax.random.key(3), settings, Shape.of(settings, dataset))
    state = method.init(jax.random.key(2), model, batch)
    after, info = method.step(jax.random.key(4), state, batch)
    for name, rate in (("left", 0.3), ("right", 0.1)):
        moved = getattr(state.model, name) - getattr(after.model, name)
        assert jax.numpy.allclose(moved, rate * getattr(info.direction, name), atol=1e-12)
    assert {"left", "right"} == set(info.evidence)


def test_chains_are_carried_and_a_killed_run_continues_bit_for_bit(tmp_path, data, run):
    half = natgrad.train(data=data, model="toy", epochs=2, batch_size=8, out=tmp_path / "half", seed=1)
    done = natgrad.resume(half.folder, epochs=4)
    whole = natgrad.load(run)
    np.testing.assert_array_equal(done.model["means"], whole.model["means"])
    (name,) = whole.model["chains"]
    np.testing.assert_array_equal(done.model["chains"][name], whole.model["chains"][name])
    assert whole.model["chains"][name].shape == (50, 6)
    assert whole.model["chains"][name].any()


@pytest.mark.parametrize("name", ["evaluate", "sample", "fisher"])
def test_commands_of_the_kind(name, run, capsys):
    assert command(capsys, name, run)["run"] == str(run)


def test_flags_of_a_command_are_those_of_the_kind(run, capsys):
    assert command(capsys, "sample", run, "--number", 1000)["on"] > 1000


def test_report_and_runs(run, capsys):
    found = command(capsys, "report", run)
    page = (run / "report.html").read_text()
    assert found["report"] == str(run / "report.html")
    assert "The means of all variables." in page
    assert "chains" in page
    (line,) = command(capsys, "runs", run.parent)["runs"]
    assert line["kind"] == "toy"
    assert line["headline"] == "test_loss"


def test_sweep(tmp_path, data, capsys):
    file = tmp_path / "toy.toml"
    file.write_text(
        f'seeds = [0]\nmodel = {{kind = "toy"}}\nmethod = ["natural", "plain"]\n'
        f'data = {{name = "{data}"}}\ntraining = {{epochs = 2, batch_size = 8}}\n'
    )
    found = command(capsys, "sweep", file, "--out", tmp_path / "sweep", "--workers", 1, "--quiet")
    assert found["failed"] == {}
    assert {record["setting"]["method"] for record in found["settings"]} == {"natural", "plain"}


def test_what_the_kind_does_not_read_is_refused(data):
    with pytest.raises(natgrad.InputError, match="layers"):
        natgrad.train(data=data, model="toy", layers=(3,))


def test_a_kind_is_small():
    files = Path(HERE, "toy").glob("*.py")
    assert sum(len(file.read_text().splitlines()) for file in files) < 150
