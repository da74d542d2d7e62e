"""Trainings that differ only in numbers share their programs; an objective is traced once."""

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natgrad
from natgrad import config
from natgrad.data import load as load_data
from natgrad.models.helmholtz import methods
from natgrad.training import compile as compiling
from natgrad.training import session
from trainings import SETTINGS, same

SHORT = SETTINGS | {"epochs": 1, "evaluation.every": 1}


@pytest.fixture
def traces(monkeypatch):
    """What a chunk of steps was traced for, with no program of another test at hand."""
    found, honest = [], session.chunks.chunk

    def chunk(algorithm, size, draw):
        function = honest(algorithm, size, draw)

        def advance(*arguments):
            found.append(size)
            return function(*arguments)

        return advance

    monkeypatch.setattr(session.chunks, "chunk", chunk)
    monkeypatch.setattr(compiling, "_programs", OrderedDict())
    return found


@pytest.fixture
def other_data(tmp_path):
    """As many rows of the same size as `data`, of other values."""
    np.save(tmp_path / "other.npy", np.random.default_rng(1).random((50, 2, 3)))
    return str(tmp_path / "other.npy")


@pytest.mark.slow
def test_a_metric_that_is_replaced_is_used_although_the_settings_are_the_same(tmp_path, data, traces):
    """As `experiments.nrws_choices.published` replaces one."""
    settings = SHORT | {"data": data, "method": "nrws", "metric.generation": "wake"}
    before = natgrad.train(out=tmp_path / "before", **settings)
    with pytest.MonkeyPatch.context() as patched:
        other = methods.SOURCES["generation"]["dreams"]
        patched.setitem(methods.SOURCES["generation"], "wake", other)
        after = natgrad.train(out=tmp_path / "after", **settings)
    again = natgrad.train(out=tmp_path / "again", **settings)
    assert traces == [8, 8]
    assert after.trace[-1]["train_loss"] != before.trace[-1]["train_loss"]
    same(again.folder, before.folder)


def test_a_second_training_of_the_same_shapes_compiles_nothing(tmp_path, place, data, other_data, traces):
    """The same again, another seed, other rows, other habits: one program, and what it does is right."""
    del place  # its cache on disk
    habits = {"evaluation.rows": 3, "training.save_seconds": 7, "epochs": 2}
    changes = [{}, {"seed": 6}, {"data": other_data}, habits, {"learning_rate": 0.3}]
    shared = [
        natgrad.train(out=tmp_path / f"shared{number}", **SHORT | {"data": data} | change)
        for number, change in enumerate(changes)
    ]
    assert traces == [8]
    compiling._programs.clear()
    for number in (2, 4):
        alone = natgrad.train(out=tmp_path / f"alone{number}", **SHORT | {"data": data} | changes[number])
        same(shared[number].folder, alone.folder)
        compiling._programs.clear()
    assert traces == [8, 8, 8]
    assert shared[1].trace[-1]["train_loss"] != shared[0].trace[-1]["train_loss"]


DAMPED = {
    "rbm": {"model": "rbm", "method": "natural", "hidden": 3, "batch_size": 8},
    "helmholtz": {"method": "nrws", "layers": (4,), "batch_size": 8},
    "adaptive": {"method": "nrws", "layers": (4,), "batch_size": 8, "metric.adaptive": True}
    | {"generation.damping": 0.3},
    "mlp": {"model": "mlp", "method": "natural", "layers": (3,), "data": "digits", "batch_size": 200},
    "vae": {"model": "vae", "method": "two-step", "layers": (4,), "latent": 2, "batch_size": 8},
}


@pytest.mark.slow
@pytest.mark.parametrize("settings", DAMPED.values(), ids=DAMPED)
def test_trainings_that_differ_in_their_damping_share_a_program(tmp_path, place, data, traces, settings):
    del place
    given = {"data": data, "epochs": 1} | settings
    for number, damping in enumerate((0.1, 0.7)):
        natgrad.train(out=tmp_path / f"shared{number}", damping=damping, **given)
    assert len(traces) == 1
    compiling._programs.clear()
    natgrad.train(out=tmp_path / "alone", damping=0.7, **given)
    same(tmp_path / "alone", tmp_path / "shared1")
    losses = [natgrad.load(tmp_path / name).trace[-1]["train_loss"] for name in ("shared0", "shared1")]
    assert losses[0] != losses[1]


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 2},
        *(
            pytest.param(change, marks=pytest.mark.slow)
            for change in (
                {"batch_size": 10},
                {"evaluation.average": 0.5},
                {"data.binarize": "round"},
                {"epochs": 2, "optimizer.schedule": "cosine"},
            )
        ),
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.slow
def test_what_changes_a_step_is_compiled_for_itself(tmp_path, place, data, traces, change):
    del place
    schedule = {"optimizer.schedule": change.get("optimizer.schedule", "constant")}
    with jax.numpy_dtype_promotion("standard"):  # optax's schedules want it
        for number, settings in enumerate((SHORT | schedule, SHORT | change)):
            natgrad.train(data=data, out=tmp_path / f"run{number}", **settings)
    assert len(traces) == 2


def test_programs_are_told_apart_by_key_and_shapes(monkeypatch):
    monkeypatch.setattr(compiling, "_programs", OrderedDict())
    traced = []

    def run(key, size, kind=jnp.float64):
        def function(x):
            traced.append((key, size))
            return x + 1

        given = jnp.zeros(size, kind)
        assert compiling.compiled(function, given, key=key)(given).tolist() == [1] * size
        return len(traced)

    assert [run("a", 2), run("a", 2), run("a", 3), run("b", 2), run("a", 2, jnp.float32)] == [1, 1, 2, 3, 4]
    assert [run(None, 2), run(None, 2)] == [5, 6]  # without a key nothing is known
    assert len(compiling._programs) == 4


def test_the_programs_used_last_are_kept(monkeypatch):
    monkeypatch.setattr(compiling, "_programs", OrderedDict())
    monkeypatch.setattr(compiling, "_KEPT", 2)
    made = {
        name: compiling.compiled(lambda x: x + 1, jnp.zeros(1), key=name) for name in ("one", "two", "three")
    }
    get = lambda name: compiling.compiled(lambda x: x + 1, jnp.zeros(1), key=name)  # noqa: E731
    assert get("two") is made["two"]  # so that "three" is the oldest now
    assert get("one") is not made["one"]
    assert get("two") is made["two"]
    assert get("three") is not made["three"]


CHOICES = {
    "ws": {"method": "ws"},
    "nrws": {"method": "nrws"},
    "kept, averaged": {"method": "nrws", "refresh": 3, "evaluation.average": 0.5},
    "adaptive": {"method": "nrws", "metric.adaptive": True, "metric.gradient_decay": 0.5},
}


@pytest.mark.parametrize(
    "case", ["kept, averaged", *(pytest.param(c, marks=pytest.mark.slow) for c in ("ws", "nrws", "adaptive"))]
)
def test_an_objective_is_traced_once_before_the_first_step(data, monkeypatch, case):
    """For shapes, for the first state and for the compiled chunk together."""
    calls = []

    def counted(make):
        def objective(chosen, samples):
            honest = make(chosen, samples)

            def estimate(*given):
                calls.append(samples)
                return honest.estimate(*given)

            return honest._replace(estimate=estimate)

        return objective

    for name, make in methods._OBJECTIVES.items():
        monkeypatch.setitem(methods._OBJECTIVES, name, counted(make))
    monkeypatch.setattr(compiling, "_programs", OrderedDict())
    begun = session.Session.begin(config.resolve(SHORT | CHOICES[case]), load_data(data))
    begun._compile()
    assert calls == [3]
