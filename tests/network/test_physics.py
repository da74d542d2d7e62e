"""Physics-informed networks: equations are those of their solutions, and the page says what was measured."""

import json
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import equations, physics

from natgrad.errors import InputError


@pytest.mark.parametrize("name", equations.EQUATIONS)
def test_the_solution_fulfills_its_equation_and_the_border_is_one(name):
    equation = equations.EQUATIONS[name]
    points = np.random.default_rng(0).uniform(size=(8, equation.dimension))
    border = equation.border(points)
    assert ((border == 0) | (border == 1)).any(axis=1).all()
    left = jax.jit(jax.vmap(lambda x: equation.inside(equation.solution, x)))(jnp.asarray(points))
    np.testing.assert_allclose(left, 0, atol=1e-10)


def test_the_largest_network_is_that_of_the_literature():
    start = equations.fresh(equations.EQUATIONS["poisson5-deep"], 0)
    assert sum(leaf.size for leaf in jax.tree.leaves(start)) == 10_065


def test_the_page_says_what_the_records_say():
    text = physics.PAGE.read_text("utf-8")
    measured = text.split(physics.BEGIN)[1].split(physics.END)[0]
    assert measured.strip() == physics.table(physics.records()).strip()


SECONDS = equations.EQUATIONS["heat"].seconds


@pytest.mark.parametrize(("name", "times"), [("poisson2", 500), ("heat", 500), ("poisson5", 100)])
def test_the_lead_that_the_page_tells_is_in_the_records(name, times):
    rows = physics.summary(physics.trials_of(name))
    natural = [row["median"] for fitter, row in rows.items() if fitter.startswith("natgrad")]
    others = [row["median"] for fitter, row in rows.items() if not fitter.startswith("natgrad")]
    assert times * min(natural) < min(others)
    assert all(len(row["errors"]) == 5 for row in rows.values())


def trial(setting, seed, valid, test):
    curve = [{"seconds": 1.0, "steps": 9.0, "valid": valid, "test": test}] if valid else []
    known = {"equation": "heat", "fitter": "optax adam", "cpu_seconds": SECONDS if seed else SECONDS / 3}
    return known | {"setting": setting, "seed": seed, "curve": curve}


def test_settings_are_chosen_by_validation_of_a_seed_that_is_not_told_and_errors_are_those_of_the_test():
    trials = [trial(1.0, 0, 0.3, 0.1), trial(2.0, 0, 0.2, 0.4), trial(3.0, 0, None, None)]
    trials += [trial(2.0, 1, 0.9, 0.6), trial(2.0, 2, float("nan"), float("nan")), trial(2.0, 3, 0.1, 0.5)]
    trials.append(trial(1.0, 1, 0.1, 0.1))  # of a setting that is no longer the best
    trials = json.loads(json.dumps(trials))
    assert physics.chosen(trials, "optax adam", ()) == 2.0
    row = physics.summary(trials)["optax adam"]
    assert (row["setting"], row["median"], row["errors"]) == (2.0, 0.6, [0.5, 0.6, float("inf")])
    line = f"| heat, {SECONDS:g} | optax adam | 2 (1, 2, 3) | 1 s | 9 | 6.0e-01 (5.0e-01, 6.0e-01, inf) |"
    assert line in physics.table([trials])


def test_a_record_is_completed_without_repeating_anything(tmp_path, monkeypatch):
    made = []

    def apart(name, fitter, setting, seed, seconds):
        made.append((setting, seed, seconds))
        return trial(setting, seed, 1 + abs(setting - 0.003), 0.1)

    monkeypatch.setattr(physics, "RESULTS", tmp_path)
    monkeypatch.setattr(physics, "apart", apart)
    physics.complete(["heat"], ["optax adam"], 1)
    tuning = [(rate, 0, SECONDS / 3) for rate in (0.001, 0.003, 0.01, 0.03, 0.1)]
    assert made == [*tuning, (0.003, 1, SECONDS)]
    physics.complete(["heat"], ["optax adam"], 2)
    assert made[6:] == [(0.003, 2, SECONDS)]


def test_a_trial_that_was_ended_is_not_recorded(monkeypatch):
    ended = subprocess.CompletedProcess([], -15, "", "")
    monkeypatch.setattr(physics.subprocess, "run", lambda *given, **more: ended)
    with pytest.raises(InputError, match="expected a trial to end by itself, got signal 15; start again"):
        physics.apart("heat", "optax adam", 0.003, 1, 60.0)


def test_a_method_that_is_not_installed_is_not_a_failed_trial(monkeypatch):
    ended = subprocess.CompletedProcess([], 1, "", "ModuleNotFoundError: No module named 'optimistix'\n")
    monkeypatch.setattr(physics.subprocess, "run", lambda *given, **more: ended)
    with pytest.raises(InputError, match=r"not installed \(.*optimistix'\); pip install '\.\[opponents\]'"):
        physics.apart("heat", "optimistix lm", 1e-12, 1, 60.0)
