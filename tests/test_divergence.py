"""Divergence: what runs away is rejected, tried with smaller steps, and given up with a verdict."""

import json
import math
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natgrad
from natgrad.core import NON_FINITE, Info
from natgrad.errors import Diverged
from natgrad.models.helmholtz import methods
from natgrad.records import state as states
from natgrad.report.listing import list_runs
from natgrad.training import compile as compiling
from natgrad.training.chunk import Course, Totals, course, is_settled, is_sound
from trainings import SETTINGS, After, Killed, die, parameters, same

FOUR = SETTINGS | {"epochs": 4}


def trapped(monkeypatch, loss, above, first=7):
    """From step `first` on, a rate above a bound gives such a loss, less at lower rates, or no steps."""
    honest = methods.algorithm

    def algorithm(settings, samples, pace):
        true = honest(settings, samples, pace)
        if settings.optimizer.learning_rate * pace.cut <= above:
            return true

        def step(key, state, batch):
            after, info = true.step(key, state, batch)
            return spoil(state, after, info, loss * pace.cut, state.steps >= first)

        return true._replace(step=step)

    monkeypatch.setattr(methods, "algorithm", algorithm)
    monkeypatch.setattr(compiling, "_programs", OrderedDict())  # those of honest methods do not serve


def spoil(state, after, info: Info, loss, bad):
    value = jnp.where(bad, loss, info.value).astype(info.value.dtype)
    if math.isfinite(loss):
        ruined = jax.tree.map(lambda leaf: jnp.where(bad, 9.0, leaf), after.model)
        return after._replace(model=ruined), info._replace(value=value)
    kept = state._replace(steps=state.steps + 1)
    after = jax.tree.map(lambda no, yes: jnp.where(bad, no, yes), kept, after)
    return after, info._replace(value=value, result=jnp.where(bad, NON_FINITE, info.result))


@pytest.mark.parametrize(
    "loss", [1e6, pytest.param(math.nan, marks=pytest.mark.slow)], ids=["absurd", "not finite"]
)
def test_a_chunk_that_runs_away_is_done_again_with_smaller_steps(tmp_path, data, monkeypatch, caplog, loss):
    """The rate 0.4 is a trap from step 7 on, and so is 0.1, but not 0.025."""
    trapped(monkeypatch, loss, above=0.05)
    run = natgrad.train(data=data, out=tmp_path / "run", learning_rate=0.4, **FOUR)
    assert [row["divergences"] for row in run.trace] == [0, 2, 2]
    assert run.trace[-1]["steps_refused"] == 0
    assert run.trace[-1]["valid_loss"] < 10
    assert run.summary["divergences"] == 2
    if math.isnan(loss):
        assert "the chunk after step 7 of epoch 2 is rejected: 100% of its steps were refused" in caplog.text
    else:
        assert "the chunk after step 7 of epoch 2 is rejected: its loss rose to 1e+06, from" in caplog.text
    assert "continuing from step 7 with the learning rate 0.1\n" in caplog.text
    assert "continuing from step 7 with the learning rate 0.025\n" in caplog.text


@pytest.mark.slow
def test_what_follows_a_divergence_is_a_training_with_that_rate(tmp_path, data, monkeypatch):
    """From the state before the trap on, the same as if the rate had been cut there by hand."""
    trapped(monkeypatch, 1e6, above=0.2, first=1)  # in the first chunk
    fallen = natgrad.train(data=data, out=tmp_path / "fallen", learning_rate=0.4, **FOUR)
    monkeypatch.undo()
    careful = natgrad.train(data=data, out=tmp_path / "careful", learning_rate=0.1, **FOUR)
    assert fallen.trace[-1]["divergences"] == 1
    for one, two in zip(parameters(fallen), parameters(careful), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("chunks", [pytest.param(4, marks=pytest.mark.slow), 7])
@pytest.mark.slow
def test_resuming_remembers_the_cut(tmp_path, data, monkeypatch, chunks):
    """Killed just before the trap, and after it."""
    trapped(monkeypatch, 1e6, above=0.05)
    settings = FOUR | {"learning_rate": 0.4}
    whole = natgrad.train(data=data, out=tmp_path / "whole", **settings)
    with pytest.raises(Killed):
        natgrad.train(data=data, out=tmp_path / "cut", watch=After(chunks, die), **settings)
    again = natgrad.resume(tmp_path / "cut")
    same(again.folder, whole.folder)
    assert again.trace[-1]["divergences"] == 2


@pytest.mark.slow
def test_a_training_that_nothing_helps_is_given_up_with_its_last_good_state(tmp_path, data, monkeypatch):
    trapped(monkeypatch, math.nan, above=0)
    with pytest.raises(
        Diverged,
        match=r"the training of .* diverged 5 times, although the learning rate was cut to 0.00156; its "
        r"last good state, of step 7, is saved: train again with a lower --learning-rate or, .* --damping",
    ):
        natgrad.train(data=data, out=tmp_path / "run", learning_rate=0.4, **FOUR)
    assert states.manifests(tmp_path / "run")[0].stem == "0000000007"
    assert natgrad.load(tmp_path / "run").trace[-1]["epoch"] == 0
    assert [line["state"] for line in list_runs(tmp_path)] == ["diverged"]
    with pytest.raises(Diverged, match="diverged 6 times"):
        natgrad.resume(tmp_path / "run")
    monkeypatch.undo()
    with pytest.raises(Killed):  # a state after the first sound chunk
        natgrad.resume(tmp_path / "run", watch=After(2, die))
    assert [line["state"] for line in list_runs(tmp_path)] == ["unfinished"]


def test_a_step_that_went_too_far_is_not_repeated(tmp_path, data, caplog):
    """The loss of a chunk of one step is that of the state before it: the same with any rate."""
    one = FOUR | {"training.chunk_steps": 1, "learning_rate": 1e4}
    with pytest.raises(
        Diverged,
        match=r"diverged in the last step before step 1, which no smaller step undoes; its state, of",
    ):
        natgrad.train(data=data, out=tmp_path / "run", **one)
    assert caplog.text.count("is rejected") == 1
    assert [line["state"] for line in list_runs(tmp_path)] == ["diverged"]


@pytest.mark.slow
def test_the_largest_rate_is_cut_until_the_training_gives_up(tmp_path, data, capsys):
    """No trap: the true refusal of steps that are not finite, and the verdict on the command line."""
    from natgrad.cli.main import main

    flags = "--method rws --layers 2 --batch-size 8 --samples 3 --epochs 2 --learning-rate 1e30 --json"
    with pytest.raises(SystemExit) as stop:
        main(["train", "--data", data, "--out", str(tmp_path / "run"), *flags.split()])
    assert stop.value.code == 2
    verdict = json.loads(capsys.readouterr().out)["error"]
    assert "diverged 5 times, although the learning rate was cut to 3.91e+27; its last good state" in verdict
    assert "of step 0, is saved: train again with a lower --learning-rate" in verdict
    assert natgrad.load(tmp_path / "run").trace[-1]["step"] == 0


def totals(value, last, taken, failed):
    return Totals(jnp.float32(value), jnp.float32(last), jnp.int32(taken), jnp.int32(failed), {}, {})


def test_the_course_of_a_chunk():
    assert course(totals(10, 1, 5, 1), totals(16, 2, 7, 2)) == Course(mean=3.0, last=2.0, refused=1 / 3)
    assert course(totals(10, 1, 5, 1), totals(10, 1, 5, 3)) == Course(mean=math.inf, last=1.0, refused=1.0)


@pytest.mark.parametrize(
    ("chunk", "sound"),
    [
        (Course(5.0, 5.0, 0.0), True),
        (Course(10.0, 10.0, 0.49), True),
        (Course(10.1, 5.0, 0.0), False),
        (Course(5.0, 10.1, 0.0), False),
        (Course(5.0, 5.0, 0.5), False),
        (Course(math.nan, 5.0, 0.0), False),
    ],
)
def test_soundness(chunk, sound):
    assert is_sound(chunk, 10.0) is sound


@pytest.mark.parametrize(
    ("found", "before", "steps", "settled"),
    [
        (Course(9.0, 9.0, 0.0), None, 1, True),
        (Course(9.0, 8.0, 0.0), None, 2, False),
        (Course(9.0, 8.0, 0.0), Course(9.0, 8.0, 0.0), 2, True),
        (Course(9.0, 8.0, 0.0), Course(9.0, 8.5, 0.0), 2, False),
        (Course(math.inf, 1.0, 1.0), Course(math.inf, 1.0, 1.0), 1, False),
    ],
)
def test_what_smaller_steps_cannot_change(found, before, steps, settled):
    assert is_settled(found, before, steps) is settled
