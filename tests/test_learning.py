"""A training that hardly learns says so, once."""

import itertools
import math

import numpy as np
import pytest

import natgrad
from natgrad.data import load as load_data
from natgrad.training import checks
from natgrad.training.checks import class_loss, independent_loss
from trainings import SETTINGS, After, Killed, die

STUCK = SETTINGS | {"learning_rate": 1e-9, "epochs": 3}


def test_independent_values_are_judged_by_their_frequencies():
    """The best product of Bernoulli distributions, by the likelihood of every training row."""
    dataset = load_data("3by3")
    chance = dataset.train.mean(axis=0)
    expected = -np.mean([np.log(np.where(row, chance, 1 - chance)).sum() for row in dataset.train[:2000]])
    assert independent_loss(dataset) == pytest.approx(expected, rel=0.02)
    exact = sum(-p * math.log(p) - (1 - p) * math.log(1 - p) for p in chance)
    assert independent_loss(dataset) == pytest.approx(exact)
    assert class_loss(np.array([0, 1, 1, 1])) == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * math.log(4))


def test_a_training_that_hardly_learns_says_so_once(tmp_path, data, monkeypatch, caplog):
    monkeypatch.setattr(checks, "ENOUGH_STEPS", 5)
    with pytest.raises(Killed):
        natgrad.train(data=data, out=tmp_path / "run", watch=After(9, die), **STUCK)
    run = natgrad.resume(tmp_path / "run")
    said = [each.getMessage() for each in caplog.records if "hardly learns" in each.getMessage()]
    assert len(said) == 1
    assert "that of independent values" in said[0]
    assert "a lower --learning-rate or --optimizer.warmup 1000 where the loss jumps or stays" in said[0]
    assert "a higher rate or more --epochs where it still falls" in said[0]
    assert "hardly learns" in run.summary["warning"]


def test_a_training_that_learns_says_nothing(tmp_path, data, monkeypatch, caplog):
    monkeypatch.setattr(checks, "ENOUGH_STEPS", 35)
    run = natgrad.train(data=data, out=tmp_path / "run", **STUCK | {"learning_rate": 0.5, "epochs": 8})
    assert "hardly learns" not in caplog.text
    assert "warning" not in run.summary


def test_few_steps_and_small_losses_are_not_judged():
    at = checks.TrainingProgress(latest=308.0, lowest=150.0)  # it has been better once
    for steps, independent in itertools.product((10, 2000), (206.0, 300.0, math.inf)):
        doubtful = steps == 2000 and independent == 206.0
        assert bool(checks.learning_doubt(at, steps, independent)) == doubtful
