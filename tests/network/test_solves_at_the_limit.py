"""Where solves and looks meet their limits: rounding, numbers that are missing, loops, losses below zero."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from network_cases import Factored, Given, solved
from residual_cases import BATCH, parameters, residuals

import natgrad
import natgrad.optax as ng
from natgrad.fitting import methods
from natgrad.metrics.first_look import first_look, seems_by_row
from natgrad.solvers import results
from natgrad.solvers.truncated import small_residual
from natgrad.updates.reduction import Line, relative_fall


def narrow(rows, columns, decay, seed=0):
    """A factor in float32 whose singular values fall by that ratio, and a right-hand side."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(side, columns)))[0] for side in (rows, columns))
    factor = left * decay ** np.arange(columns) @ right.T
    return jnp.asarray(factor, jnp.float32), jnp.asarray(rng.normal(size=columns), jnp.float32)


@pytest.mark.parametrize("damping", [1e-6, 1e-7])
def test_a_sketch_keeps_its_sign_in_float32(damping):
    """Eigenvalues over more digits than float32 has: the preconditioner must stay positive."""
    rows, g = narrow(60, 50, 0.77)
    solver = ng.nystrom_gradient(30, 400, stop=small_residual(1e-4))
    found = solved(solver, Factored(rows), g, jnp.float32(damping))
    assert found.result == results.CONVERGED
    assert 0 < int(found.iterations) < 100
    wide = np.asarray(rows, np.float64)
    left = np.asarray(g) - wide.T @ (wide @ np.asarray(found.value)) - damping * np.asarray(found.value)
    assert np.linalg.norm(left) < 0.1 * np.linalg.norm(g)  # eps times the condition is one


def test_a_sketch_of_nothing_changes_nothing():
    solver = ng.nystrom_gradient(3, 20, stop=small_residual(1e-10))
    found = solved(solver, Given(jnp.zeros((5, 5))), jnp.arange(5.0), 0.5)
    np.testing.assert_allclose(found.value, 2 * np.arange(5.0), rtol=1e-12, atol=1e-14)
    singular = Given(jnp.diag(jnp.asarray([1.0, 2.0, 0.0])))
    found = solved(solver, singular, jnp.asarray([1.0, 1.0, 0.0]), 0.0)
    np.testing.assert_allclose(found.value[:2], [1.0, 0.5], rtol=1e-9)  # the third may be anything


def test_a_wrong_solve_in_sample_space_has_failed():
    """With a damping far below rounding, the solution is worse than none."""
    operator, g = Factored(narrow(40, 10, 0.5)[0].T), jnp.ones(40, jnp.float32)
    assert solved(ng.dual_solve(), operator, g, 1e-9).result == results.FAILED
    assert solved(ng.dual_solve(), operator, g, 0.1).result == results.CONVERGED


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("solver", [ng.nystrom_gradient(15), ng.minres_qlp(30)])
def test_products_may_first_be_asked_for_inside_of_a_loop(solver, by_row):
    start = parameters(9)
    step = ng.scale_by_gauss_newton(residuals, by_row=by_row, solver=solver, options=ng.Options())
    found = jax.jit(lambda g: step.update(g, step.init(start), start, batch=BATCH)[0])(start)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


def standardized(p, batch):
    """Rows that need each other, and are 0 / 0 alone."""
    x = batch["x"]
    return {"x": p["slope"] * (x - x.mean()) / x.std() - x}


def test_rows_that_are_not_numbers_alone_are_not_independent():
    start, batch = {"slope": jnp.asarray(1.0)}, {"x": jnp.arange(1.0, 7.0)}
    assert not first_look(standardized, 1.0)(start, batch).by_row
    assert natgrad.least_squares(standardized, start, batch, steps=20).nit > 0

    def rooted(p, b):  # made-up numbers are partly negative, and say nothing
        found = p["slope"] * jnp.sqrt(b["x"])
        return {"x": found - found.mean()}

    assert not seems_by_row(rooted, start, batch)


def test_a_number_in_the_batch_of_a_large_problem_is_no_row(monkeypatch):
    monkeypatch.setattr("natgrad.metrics.residuals.LARGEST_MB", 0.0)
    batch = {"x": jnp.arange(5.0), "nu": jnp.asarray(0.1)}
    look = first_look(lambda p, b: p["a"] * b["x"] - b["nu"], 1.0)({"a": jnp.ones(5)}, batch)
    assert not look.by_row


def test_made_up_numbers_have_few_rows_where_the_jacobian_does_not_fit(monkeypatch):
    seen = []

    def watched(p, b):
        seen.append(b["x"].shape[0])
        return {"x": p["a"] * b["x"]}

    start, batch = {"a": jnp.asarray(1.0)}, {"x": jnp.arange(1000.0)}
    monkeypatch.setattr("natgrad.metrics.residuals.LARGEST_MB", 0.0)
    assert seems_by_row(watched, start, batch)
    assert 8 in seen  # beside the shapes of all rows


@pytest.mark.parametrize(("after", "better"), [(-2.0, True), (-0.5, False)])
def test_a_loss_below_zero_falls_where_it_gets_smaller(after, better):
    nothing = jnp.zeros(())
    line = Line(nothing, lambda: jnp.asarray(-1.0), lambda rate: jnp.asarray(after), nothing, nothing)
    assert (relative_fall(line, nothing) > 0) == better


def test_the_damping_of_a_kept_metric_moves_once_for_each_renewal():
    """Steps solved with an earlier damping say nothing of the present one."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(12, 3)))

    def network(p, x):
        return jnp.tanh(x @ p["in"]) @ p["out"]

    def value(p):
        return 0.5 * (network(p, x) ** 2).mean()

    start = {"in": 0.5 * jnp.ones((3, 4)) + 0.1 * x[:3, :1], "out": jnp.ones((4, 1))}
    options = ng.Options(damping=ng.levenberg_marquardt(0.1), refresh=5)
    optimizer = ng.natural_gradient(network, ng.linear(), options=options, example=x)

    @jax.jit
    def step(p, state):
        rows = {"inputs": x, "targets": jnp.zeros((12, 1)), "value_fn": value}
        updates, state = optimizer.update(jax.grad(value)(p), state, p, **rows)
        return optax.apply_updates(p, jax.tree.map(lambda u: -0.1 * u, updates)), state

    p, state, levels = start, optimizer.init(start), []
    for _ in range(10):
        p, state = step(p, state)
        levels.append(float(state.kept.level))
    assert len(set(levels[:5])) == len(set(levels[5:])) == 1
    assert levels[5] != levels[4]


def test_rows_that_are_all_zero_are_no_minimum_where_others_are_not():
    """A penalty that only few rows feel: a step that draws none of them does not end the fit."""
    batch = {"x": jnp.linspace(0.0, 3.0, 300)}

    def penalty(p, b):
        return {"x": jnp.maximum(0.0, p["a"] * b["x"] - 2.97)}

    found = natgrad.least_squares(
        penalty, {"a": jnp.asarray(1.0)}, batch, method=methods.spring(rows=10), steps=300
    )
    assert found.status != 2
    assert not found.success or found.cosine < 1e-3
