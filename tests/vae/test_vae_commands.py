"""Commands on a finished run: evaluate, sample, fisher; and what they refuse."""

import json

import jax
import numpy as np
import pytest

import natgrad
from natgrad.cli.main import main
from natgrad.data import load_settings
from natgrad.layers import generator
from natgrad.models.vae.measure import evaluated_run, unit_stacks


@pytest.fixture(scope="module", autouse=True)
def usual_promotion():
    """Adam's count is a whole number."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def run(place):
    """A training on images of 4 x 4 pixels, of two kinds."""
    rng = np.random.default_rng(0)
    chances = np.where(rng.random((60, 1, 1)) < 0.5, np.eye(4) * 0.9, 0.9 - np.eye(4) * 0.8)
    np.save(place / "binary.npy", (rng.random((60, 4, 4)) < chances).astype(np.uint8))
    settings = {"layers": (6,), "latent": 2, "batch_size": 8, "epochs": 3, "learning_rate": 0.01}
    return natgrad.train(
        data=str(place / "binary.npy"), model="vae", method="plain", out=place / "r", **settings
    )


def ended(capsys, *words):
    """The exit code, what a command prints with --json, and what it says beside."""
    with pytest.raises(SystemExit) as end:
        main([*map(str, words), "--json"])
    printed = capsys.readouterr()
    return end.value.code, json.loads(printed.out), printed.err


def done(capsys, *words):
    code, result, beside = ended(capsys, *words)
    assert code == 0, (result, beside)
    return result


def test_evaluate_says_the_likelihood_and_its_bounds(run, capsys):
    found = done(capsys, "evaluate", run.folder, "--samples", 400, "--bound-samples", 5)
    assert found["test_elbo"] < found["test_ll"] + 5 * found["mc_se"]
    assert found["test_elbo"] - 0.2 < found["test_bound"] < found["test_ll"] + 0.2
    assert found["test_elbo"] == pytest.approx(found["reconstruction"] - found["latent_kl"])
    again = run.model.log_likelihood(held_out(run), samples=4000, seed=3)
    assert found["test_ll"] == pytest.approx(again.mean, abs=6 * (found["mc_se"] + again.mc_se))
    assert found["test_ll_se"] == pytest.approx(again.se, rel=0.3)
    assert found["rows"] == len(held_out(run)) == 6
    assert 10 < found["effective_samples"] <= 400
    assert 0 <= found["active_units"] <= 2
    assert "warning" not in found


@pytest.mark.slow
def test_evaluate_warns_of_few_samples(run):
    found = evaluated_run(run.folder, samples=3, bound_samples=1, rows=4)
    assert found["rows"] == 4
    assert found["warning"].startswith("mc_se is not reliable, and test_ll is likely to be too low: for")


def test_the_headline_is_the_test_likelihood(run, capsys):
    best = max(run.trace, key=lambda row: row["valid_ll"])
    assert (run.summary["best_epoch"], run.summary["test_ll"]) == (best["epoch"], best["test_ll"])
    with pytest.raises(SystemExit):
        main(["runs", str(run.folder.parent)])
    assert "test LL" in capsys.readouterr().out


def test_samples_reconstructions_and_completions_are_drawn(run, capsys, tmp_path):
    drawn = done(capsys, "sample", run.folder, "--number", 5, "--out", tmp_path / "s.png")
    assert (tmp_path / "s.png").read_bytes()[:4] == b"\x89PNG"
    assert drawn["number"] == 5
    again = done(capsys, "sample", run.folder, "--given", "test:0,2", "--out", tmp_path / "r.png")
    rows = held_out(run)
    means = run.model.reconstruct(rows)[[0, 2]]
    assert again["pixels_agreed"] == pytest.approx((means.round() == rows[[0, 2]]).mean())
    words = ["--given", "test:1", "--mask", "left", "--number", 3, "--steps", 4, "--out", tmp_path / "c.png"]
    completed = done(capsys, "sample", run.folder, *words)
    assert completed["hidden"] == 8
    assert 0 <= completed["pixels_agreed"] <= 1
    assert 0 <= completed["moved"] <= 1
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.slow
def test_the_fisher_of_both_networks_is_drawn(run, capsys, tmp_path):
    found = done(capsys, "fisher", run.folder, "--rows", 20, "--out", tmp_path / "f.png")
    layers = [(row["network"], row["layer"], row["units"], row["block"]) for row in found["layers"]]
    assert layers == [
        ("generation", 0, 6, 3),
        ("generation", 1, 16, 7),
        ("recognition", 0, 6, 17),
        ("recognition", 1, 4, 7),
    ]
    stacks = unit_stacks(generator.key(0), run.model.parameters, held_out(run))
    largest = np.linalg.eigvalsh(np.asarray(stacks["recognition"][1].dense()))[:, -1].max()
    assert found["layers"][3]["largest"] == pytest.approx(largest, rel=0.5)
    assert (tmp_path / "f.png").exists()


REFUSED = {
    "samples: expected at least 1, got 0": ["evaluate", "--samples", 0],
    "bound_samples: expected at least 1, got 0": ["evaluate", "--bound-samples", 0],
    "rows: expected at least 0, got -1": ["evaluate", "--rows", -1],
    "memory_mb: expected a number greater than 0": ["evaluate", "--memory-mb", 0],
    "number: expected at least 1, got 0": ["sample", "--number", 0],
    "--mask needs --given": ["sample", "--mask", "left"],
    "expected a number below 6, the rows of test, got 99": ["sample", "--given", "test:99"],
    "rows: expected at least 1, got 0": ["fisher", "--rows", 0],
}


@pytest.mark.parametrize("message", REFUSED)
def test_mistakes_are_one_sentence(message, run, capsys):
    name, *words = REFUSED[message]
    code, result, _ = ended(capsys, name, run.folder, *words)
    assert code == 2
    assert message in result["error"]


def test_damaged_and_foreign_folders_are_refused(run, capsys, tmp_path):
    code, result, _ = ended(capsys, "evaluate", tmp_path)
    assert code == 2
    assert str(tmp_path) in result["error"]
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in run.folder.iterdir():
        if file.is_file():
            (broken / file.name).write_bytes(file.read_bytes())
    code, result, _ = ended(capsys, "evaluate", broken)
    assert code == 2
    assert "broken" in result["error"]


def held_out(run):
    """The test rows in the file's order."""
    return load_settings(run.config.data).test.astype(float)
