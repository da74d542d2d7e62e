"""The best state on validation data is kept, used, said and resumed, whatever the kind of model."""

import hashlib
import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import natgrad
from natgrad.models.registry import Spec, spec_of
from trainings import SETTINGS, After, Killed, die, same

HELD = {"epochs": 3, "batch_size": 10, "seed": 5, "evaluation.every": 1, "evaluation.log_checkpoints": True}
SMALL = {"evaluation.test_samples": 5, "samples": 2, "layers": (3,)}
KINDS = {  # four steps make an epoch, so that a copy of the model of epoch 1 is kept
    "rbm": {"hidden": 3, "chains": 4},
    "helmholtz": SMALL | {"method": "rws"},
    "vae": SMALL | {"method": "plain", "latent": 2},
    "autoencoder": {"method": "plain", "layers": (2,)},
}


@pytest.fixture(autouse=True)
def promotion():
    """optax's Adam wants JAX's own rules of promotion."""
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def first_is_best(monkeypatch):
    """The model of epoch 1 is the best, whatever it has learned."""
    monkeypatch.setattr(Spec, "judged", lambda spec, row: abs(row["epoch"] - 1.0))


def leaves(run):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.model.parameters)]


def equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(leaves(one), leaves(other), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(1)
@pytest.mark.usefixtures("first_is_best")
def test_the_best_state_is_the_one_that_is_used(kind, tmp_path, data):
    run = natgrad.train(data=data, model=kind, out=tmp_path / "run", **HELD, **KINDS[kind])
    assert run.summary["best_epoch"] == 1
    assert run.summary["epochs"] == 3
    headline = spec_of(kind).headline_of(run.trace[1])
    assert run.summary[headline] == run.trace[1][headline] != run.trace[3][headline]
    first, last = natgrad.load(run.folder, step=4), natgrad.load(run.folder, last=True)
    assert equal(run, first)
    assert equal(natgrad.load(run.folder), first)
    assert not equal(last, first)


@pytest.mark.usefixtures("first_is_best")
@pytest.mark.slow
def test_a_killed_training_remembers_the_best_state_and_its_row(tmp_path, data):
    settings = SETTINGS | {"model": "rbm", "hidden": 3, "chains": 4, "evaluation.every": 1}
    for name in ("method", "layers", "samples", "evaluation.test_samples"):
        settings.pop(name)
    whole = natgrad.train(data=data, out=tmp_path / "whole", **settings)
    with pytest.raises(Killed):
        natgrad.train(data=data, out=tmp_path / "run", watch=After(11, die), **settings)
    again = natgrad.resume(tmp_path / "run")
    assert again.summary["best_epoch"] == whole.summary["best_epoch"] == 1
    assert again.summary["test_ll"] == whole.summary["test_ll"] == whole.trace[1]["test_ll"]
    same(again.folder, whole.folder)
    np.testing.assert_array_equal(again.model.sample(3), whole.model.sample(3))


@pytest.mark.usefixtures("first_is_best")
@pytest.mark.slow
def test_a_run_that_kept_no_best_state_is_used_as_it_ended(tmp_path, data):
    """As runs of earlier versions are: their next evaluation is the best so far."""
    run = natgrad.train(data=data, out=tmp_path / "run", **SETTINGS | {"epochs": 2, "evaluation.every": 1})
    (path,) = (run.folder / "state").glob("0000000010.safetensors")
    save_file({k: v for k, v in load_file(path).items() if not k.startswith("best")}, path)
    manifest = json.loads(path.with_suffix(".json").read_text())
    del manifest["notes"]["best"], manifest["seal"]
    manifest |= {"format": 1, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    path.with_suffix(".json").write_text(json.dumps(manifest))
    assert equal(natgrad.load(run.folder), natgrad.load(run.folder, last=True))
    longer = natgrad.resume(run.folder, epochs=4)
    assert longer.summary["best_epoch"] == 3


def test_a_row_is_judged_by_its_kinds_criterion():
    rows = [{"valid_ll": -3.0, "valid_loss": 1.0}, {"valid_ll": -2.0, "valid_loss": 2.0}]
    assert [spec_of("helmholtz").judged(row) for row in rows] == [3.0, 2.0]
    assert [spec_of("rbm").judged(row) for row in rows] == [1.0, 2.0]
    assert spec_of("helmholtz").judged({"valid_ll": float("nan")}) == float("inf")
    assert spec_of("helmholtz").judged({"valid_ll": None}) == float("inf")
