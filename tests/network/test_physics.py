"""Physics-informed networks: equations are those of their solutions, and the page says what was measured."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import equations, physics


@pytest.mark.parametrize("name", equations.EQUATIONS)
def test_the_solution_fulfills_its_equation_and_the_border_is_one(name):
    equation = equations.EQUATIONS[name]
    points = np.random.default_rng(0).uniform(size=(8, equation.dimension))
    border = equation.border(points)
    assert ((border == 0) | (border == 1)).any(axis=1).all()
    left = jax.jit(jax.vmap(lambda x: equation.inside(equation.solution, x)))(jnp.asarray(points))
    np.testing.assert_allclose(left, 0, atol=1e-10)


def test_the_page_says_what_the_records_say():
    text = physics.PAGE.read_text("utf-8")
    measured = text.split(physics.BEGIN)[1].split(physics.END)[0]
    assert measured.strip() == physics.table(physics.records()).strip()


def test_settings_are_chosen_by_validation_of_the_first_seed_and_errors_are_those_of_the_test():
    def trial(setting, seed, valid, test):
        curve = [{"seconds": 1.0, "steps": 9.0, "valid": valid, "test": test}] if valid else []
        return {"fitter": "a", "setting": setting, "seed": seed, "curve": curve}

    trials = [trial(1.0, 0, 0.3, 0.1), trial(2.0, 0, 0.2, 0.4), trial(3.0, 0, None, None)]
    trials += [trial(2.0, 1, 0.9, 0.6), trial(2.0, 2, float("nan"), float("nan"))]
    record = {"equation": "heat", "cpu_seconds": 5.0, "trials": json.loads(json.dumps(trials))}
    row = physics.summary(record)["a"]
    assert (row["setting"], row["median"], row["errors"]) == (2.0, 0.6, [0.4, 0.6, float("inf")])
    assert "| heat, 5 CPU s | a | 2 (1, 2, 3) | 9 | 6.0e-01 (4.0e-01, 6.0e-01, inf) |" in physics.table(
        [record]
    )
