"""Least squares: the operator against Jacobians, methods against their definitions, and the whole loop."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from residual_cases import BATCH, WEIGHTS, draw, parameters, residuals

import natgrad
from natgrad.errors import InputError
from natgrad.fitting import ending, methods
from natgrad.fitting.result import LeastSquaresResult
from natgrad.metrics.first_look import first_look, seems_by_row
from natgrad.metrics.probing import dense
from natgrad.metrics.residuals import ResidualCurvature, half_square, squares
from natgrad.optax import (
    anchored,
    conjugate_gradient,
    delayed_gratification,
    dual_solve,
    learning_rate,
    qr_solve,
    scale_by_gauss_newton,
    small_residual,
)
from natgrad.solvers.correction import accelerated
from natgrad.updates.natural import Options


def coupled(p, batch):
    """Rows that depend on each other."""
    found = jnp.tanh(batch["edge"] @ p["in"]) @ p["out"]
    return {"edge": found - found.mean()}


@jax.custom_vjp
def reverse_only(p):
    return p


reverse_only.defvjp(lambda p: (p, None), lambda _, cotangent: (cotangent,))


def rho(flat):
    """The definition, by hand."""
    found = residuals(ravel_pytree(parameters())[1](flat), BATCH)
    return jnp.concatenate(
        [jnp.sqrt(0.5 / 4) * found["edge"], jnp.sqrt(2.0 / 14) * found["inside"].reshape(-1)]
    )


@pytest.mark.parametrize(("by_row", "largest"), [(True, 512.0), (False, 512.0), (True, 0.0)])
@pytest.mark.few(1)
def test_the_operator_is_that_of_the_jacobian(by_row, largest, monkeypatch):
    """Products from R itself, and by passes where rows are not apart or R is too large."""
    monkeypatch.setattr("natgrad.metrics.residuals.LARGEST_MB", largest)
    problem = squares(residuals, WEIGHTS, by_row=by_row)
    assert problem.has_cheap_rows(parameters(), BATCH) == (by_row and largest > 0)

    @jax.jit
    def everything(p):
        operator, flat = ResidualCurvature(p, BATCH, problem), ravel_pytree(p)[0]
        product, j = operator.bind(), jax.jacrev(rho)(flat)
        w, v = jnp.arange(18.0), ravel_pytree(p)[1](jnp.cos(flat))
        second = jax.jvp(lambda q: jax.jvp(rho, (q,), (jnp.cos(flat),))[1], (flat,), (jnp.cos(flat),))[1]
        estimate = half_square(problem).estimate(jax.random.key(0), (), p, BATCH)[0]
        return [
            (operator.factor_rows(), j),
            (dense(operator), j.T @ j),
            (product.gram(), j @ j.T),
            (product.push(v), j @ jnp.cos(flat)),
            (ravel_pytree(product.pull(w))[0], j.T @ w),
            (ravel_pytree(operator.bend(v))[0], j.T @ second),
            (estimate.value, 0.5 * rho(flat) @ rho(flat)),
            (ravel_pytree(estimate.gradient)[0], j.T @ rho(flat)),
        ]

    for found, expected in everything(parameters()):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_rows_that_depend_on_each_other_are_noticed():
    assert first_look(residuals, WEIGHTS)(parameters(), BATCH).by_row
    assert not first_look(coupled, 1.0)(parameters(), {"edge": BATCH["edge"]}).by_row
    assert not first_look(lambda p, batch: residuals(p, BATCH), WEIGHTS)(parameters(), None).by_row
    j = jax.jit(jax.jacrev(rho))(ravel_pytree(parameters())[0])
    columns = first_look(residuals, WEIGHTS)(parameters(), BATCH).columns
    np.testing.assert_allclose(columns, (j**2).sum(axis=0))
    with pytest.raises(InputError, match="a batch laid out as the residuals are"):
        natgrad.least_squares(lambda p, x: p["out"] - 1, parameters(), jnp.ones(3), by_row=True)


def test_rows_that_depend_on_each_other_beside_the_start_only_are_noticed():
    """The coupling and its derivative are zero where p is."""
    both = lambda p, x: p * x * (1 + p**2 * (x**2).mean()) - 1  # noqa: E731
    start, x = jnp.asarray(0.0), jnp.arange(1.0, 5.0)
    assert not first_look(both, 1.0)(start, x).by_row
    assert first_look(lambda p, x: p * x * (1 + p**2 * x**2) - 1, 1.0)(start, x).by_row


@pytest.mark.few(1)
@pytest.mark.parametrize("apart", [True, False])
def test_some_rows_decide_where_the_jacobian_does_not_fit_in_memory(apart, monkeypatch):
    monkeypatch.setattr("natgrad.metrics.residuals.LARGEST_MB", 0.0)
    centered = lambda p, b: jax.tree.map(lambda r: r - r.mean(), residuals(p, b))  # noqa: E731
    found = first_look(residuals if apart else centered, WEIGHTS)(parameters(), BATCH)
    assert found.by_row == apart
    assert found.columns.shape == ravel_pytree(parameters())[0].shape


def test_a_small_array_of_coupled_rows_is_noticed_beside_a_large_one():
    """Each array is compared by itself: a small border does not hide behind the inside."""

    def both(p, batch):
        found = residuals(p, batch)
        return {"inside": 1e4 * found["inside"], "edge": 1e-2 * (found["edge"] - found["edge"].mean())}

    assert not first_look(both, 1.0)(parameters(), BATCH).by_row


def test_residuals_that_bear_no_single_row_are_not_by_row():
    shaped = lambda p, x: (x.reshape(2, 2) @ p["in"]).reshape(-1)[:4]  # noqa: E731
    assert not first_look(shaped, 1.0)(parameters(width=2), jnp.ones(4)).by_row


@pytest.mark.parametrize(
    ("other", "why"), [(0.0, "the solution is not finite, or wrong"), (1.0, "so ill-conditioned")]
)
@pytest.mark.few(1)
def test_a_fit_in_which_no_step_could_be_solved_is_no_success(other, why):
    """Undamped and singular: Gauss-Newton has no step at all."""
    fit = lambda p, x: x * (p[0] + other * p[1]) - 1.0  # noqa: E731
    method = methods.energy_natural(0.0, solver=qr_solve())
    found = natgrad.least_squares(fit, jnp.ones(2), jnp.arange(1.0, 5.0), method=method)
    assert (found.status, found.success, found.accepted) == (ending.AWAY, False, 0)
    assert why in found.message


@jax.jit
def spring_by_hand(batch, last, damping, momentum):
    """phi = mu phi' + J^T (J J^T + damping)^-1 (rho - mu J phi'), with its own Jacobian."""
    flat = ravel_pytree(parameters())[0]
    j, r = jax.jacrev(rho)(flat), rho(flat)
    s = jnp.linalg.solve(j @ j.T + damping * jnp.eye(len(r)), r - momentum * j @ last)
    return momentum * last + j.T @ s


EXACT = {"qr": qr_solve(), "dual": dual_solve(), "cg": conjugate_gradient(90, stop=small_residual(1e-13))}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.few(1)
def test_spring_is_its_definition_whatever_solves(name):
    problem, last = squares(residuals, WEIGHTS, by_row=True), jnp.asarray(draw(9, seed=5))
    unravel = ravel_pytree(parameters())[1]

    @jax.jit
    def found(p):
        operator = ResidualCurvature(p, BATCH, problem)
        gradient = half_square(problem).estimate(jax.random.key(0), (), p, BATCH)[0].gradient
        chosen = anchored(EXACT[name])
        factor, _ = chosen.prepare(operator, jnp.asarray(1e-3), 0.0)
        return chosen.solve(factor, gradient, unravel(0.9 * last))

    solution, expected = found(parameters()), spring_by_hand(BATCH, last, 1e-3, 0.9)
    np.testing.assert_allclose(ravel_pytree(solution.value)[0], expected, rtol=1e-8, atol=1e-8)
    j = jax.jit(jax.jacrev(rho))(ravel_pytree(parameters())[0])
    np.testing.assert_allclose(solution.curvature, (j @ expected) @ (j @ expected), rtol=1e-8)


@pytest.mark.parametrize("most", [1e9, 1e-9])
@pytest.mark.few(1)
def test_acceleration_adds_half_of_what_bends(most):
    problem = squares(residuals, WEIGHTS, by_row=True)

    @jax.jit
    def both(p):
        operator, flat = ResidualCurvature(p, BATCH, problem), ravel_pytree(p)[0]
        gradient = half_square(problem).estimate(jax.random.key(0), (), p, BATCH)[0].gradient
        solver = accelerated(qr_solve(), most=most)
        factor, _ = solver.prepare(operator, jnp.asarray(1e-2), 0.0)
        j = jax.jacrev(rho)(flat)
        inverse = jnp.linalg.inv(j.T @ j + 1e-2 * jnp.eye(9))
        d = inverse @ j.T @ rho(flat)
        second = jax.jvp(lambda q: jax.jvp(rho, (q,), (d,))[1], (flat,), (d,))[1]
        expected = d + (0.5 * inverse @ j.T @ second if most > 1 else 0 * d)
        return ravel_pytree(solver.solve(factor, gradient, None).value)[0], expected

    np.testing.assert_allclose(*both(parameters()), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", ["lm", "gauss-newton", "spring"])
@pytest.mark.few(1)
def test_the_loss_never_rises_and_falls_far(method):
    """From a poor start with residuals that bend: some steps are rejected, none raises the loss."""
    start = jax.tree.map(lambda leaf: 3 * leaf, parameters())
    found = natgrad.least_squares(residuals, start, BATCH, weights=WEIGHTS, method=method, steps=300)
    losses = [*found.history["loss"], found.loss]
    assert (np.diff(losses) <= 0).all()
    moved = np.diff(losses) < 0
    np.testing.assert_array_equal(moved, found.history["accepted"])
    assert found.accepted == moved.sum()
    assert found.nit > found.accepted or method != "lm"
    assert found.loss < 0.2 * losses[0]
    np.testing.assert_allclose(found.residuals["edge"], residuals(found.parameters, BATCH)["edge"])


@pytest.mark.slow
def test_a_linear_problem_is_solved_to_the_last_digits_and_rows_or_not_agree():
    a, b = draw(30, 4), draw(30, seed=1)
    expected = np.linalg.lstsq(a, b, rcond=None)[0]
    fit = lambda p, rows: rows[0] @ p - rows[1]  # noqa: E731
    for by_row in (None, False):
        found = natgrad.least_squares(fit, jnp.zeros(4), (jnp.asarray(a), jnp.asarray(b)), by_row=by_row)
        np.testing.assert_allclose(found.parameters, expected, rtol=1e-7)
        assert found.success


@pytest.mark.slow
def test_a_fit_ends_where_it_is_told_to():
    fit = lambda p, x: jnp.exp(-p * x) - jnp.exp(-2 * x)  # noqa: E731
    x, start = jnp.linspace(0, 1, 9), jnp.asarray(0.5)
    close = natgrad.least_squares(fit, start, x, target=1e-4)
    assert (close.status, close.success) == (ending.TARGET, True)
    assert 1e-8 < close.loss <= 1e-4
    assert natgrad.least_squares(fit, start, x, steps=2).message == ending.MESSAGES[ending.STEPS]
    assert natgrad.least_squares(fit, start, x, seconds=0.0).status == ending.SECONDS
    assert natgrad.least_squares(fit, start, x, gtol=1e-3).status == ending.FLAT
    seen = []
    watched = natgrad.least_squares(
        fit, start, x, watch=lambda p, made: seen.append((float(p), made)) or True
    )
    assert (watched.status, seen) == (ending.WATCHED, [(float(watched.parameters), watched.nit)])
    broken = natgrad.least_squares(lambda p, x: jnp.log(p) + x, -start, x)
    assert (broken.status, broken.success) == (ending.BROKEN, False)


def test_slow_steps_are_made_one_by_one_between_two_looks_at_the_clock(monkeypatch):
    """As if a step took ten seconds: a limit of seconds is passed by no more than the steps of one look."""
    clock = iter(range(0, 10**6, 10))
    monkeypatch.setattr("natgrad.fitting.loop.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    found = natgrad.least_squares(residuals, parameters(), BATCH, weights=WEIGHTS, ftol=0.0, seconds=100.0)
    assert found.status == ending.SECONDS
    assert 4 < found.nit < 12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "newton"}, "expected a method out of lm, gauss-newton, spring, got 'newton'"),
        ({"weights": {"a": 1.0, "b": 1.0, "c": 1.0}}, "one for each of 1 arrays of residuals"),
        ({"weights": -1.0}, "zero or positive"),
        ({"weights": {"edge": 1.0}}, r"under its own key, zero or positive, got \{'edge': 1.0\}"),
        ({"weights": np.ones(3)}, r"got array\(\[1\., 1\., 1\.\]\); give a tree like that"),
        ({"steps": 0}, "steps: expected at least 1, got 0"),
        ({"steps": 10**30}, "steps: expected at most 1000000000"),
        ({"steps": 2.5}, "steps: expected a whole number, got 2.5"),
        ({"steps": True}, "steps: expected a whole number, got True"),
        ({"xtol": 1.0}, "expected limits out of target, gtol, ftol, seconds, got xtol"),
        ({"gtol": -1.0}, "gtol must be zero or positive, got -1.0"),
        ({"residuals": lambda p, x: jnp.arange(3)}, "expected floating-point arrays of residuals, got int"),
        ({"residuals": lambda p, x: {}}, "expected floating-point arrays of residuals, got none"),
        ({"residuals": lambda p, x: p[:0]}, "at least one residual in every array"),
        ({"parameters": jnp.arange(3)}, "must be floating-point"),
        ({"parameters": "abc"}, "must be floating-point, but the only one is <U3"),
        ({"residuals": 3}, "expected a function, got 3"),
        ({"residuals": lambda p: p - 1}, r"write residuals\(parameters, batch\)"),
        ({"seconds": "x"}, "seconds must be zero or positive, got 'x'"),
        ({"target": "1e-9"}, "target must be zero or positive, got '1e-9'"),
        ({"batch": {"name": "run"}}, "expected arrays in the batch, got 'run'"),
        ({"method": ["lm"]}, "expected a method out of lm, gauss-newton, spring"),
        ({"watch": 3}, "expected a function, got 3"),
        ({"residuals": lambda p, x: reverse_only(p) - 1}, "write it with jax.custom_jvp"),
        ({"method": methods.spring(rows=2), "gtol": 1e-3}, "gtol looks at the gradient of all rows"),
    ],
)
def test_a_mistake_is_one_sentence(change, message):
    given = {"residuals": lambda p, x: p - 1, "parameters": jnp.ones(3), "batch": jnp.ones(3)} | change
    with pytest.raises(InputError, match=message):
        natgrad.least_squares(**given)
    with pytest.raises(InputError, match=r"must be positive, since it is multiplied, got 0\.0"):
        methods.marquardt(0.0)
    with pytest.raises(InputError, match=r"zero or positive, got -1\.0"):
        methods.energy_natural(-1.0)
    with pytest.raises(InputError, match=r"below 1, got 1\.0"):
        methods.spring(momentum=1.0)
    with pytest.raises(InputError, match=r"numbers above one, got 1\.0 and 1\.5"):
        delayed_gratification(1.0, up=1.0)


def test_the_transformation_gives_the_damped_step_in_a_chain():
    optimizer = optax.chain(
        scale_by_gauss_newton(residuals, weights=WEIGHTS, by_row=True, damping=1e-2), optax.scale(-0.5)
    )

    @jax.jit
    def step(p):
        gradients = jax.grad(half_square(squares(residuals, WEIGHTS)).revalue)(p, BATCH)
        updates, state = optimizer.update(gradients, optimizer.init(p), p, batch=BATCH)
        return ravel_pytree(updates)[0], state[0].evidence

    flat = ravel_pytree(parameters())[0]
    j = np.asarray(jax.jit(jax.jacrev(rho))(flat))
    expected = -0.5 * np.linalg.solve(j.T @ j + 1e-2 * np.eye(9), j.T @ np.asarray(rho(flat)))
    found, evidence = step(parameters())
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert evidence.residual < 1e-12
    with pytest.raises(InputError, match="scale_by_gauss_newton needs the batch"):
        optimizer.update(parameters(), optimizer.init(parameters()), parameters())


@pytest.mark.parametrize("apart", [True, False])
def test_the_transformation_finds_out_whether_rows_are_independent(apart):
    function = residuals if apart else coupled
    batch, weights = (BATCH, WEIGHTS) if apart else ({"edge": BATCH["edge"]}, 1.0)
    optimizer, problem = scale_by_gauss_newton(function, weights=weights), squares(function, weights)
    loss = half_square(problem).revalue

    def step(p):
        gradients = jax.grad(loss)(p, batch)
        return optimizer.update(gradients, optimizer.init(p), p, batch=batch)[0]

    @jax.jit
    def by_hand(p):
        j = ravel_rows(
            jax.jacrev(lambda p: squares(function, WEIGHTS if apart else 1.0).stacked(p, batch))(p)
        )
        gradient = ravel_pytree(jax.grad(loss)(p, batch))[0]
        return jnp.linalg.solve(j.T @ j + 1e-2 * jnp.eye(j.shape[1]), gradient)

    np.testing.assert_allclose(ravel_pytree(jax.jit(step)(parameters()))[0], by_hand(parameters()), rtol=1e-8)
    assert seems_by_row(function, parameters(), batch) == apart


def ravel_rows(jacobian):
    leaves = jax.tree.leaves(jacobian)
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in leaves], axis=1)


def test_the_transformation_refuses_steps_that_raise_the_loss():
    options = Options(damping=delayed_gratification(1e-12), length=learning_rate(1.0))
    optimizer = scale_by_gauss_newton(lambda p, x: jnp.arctan(p * x), by_row=True, options=options)
    start, x = jnp.asarray([3.0]), jnp.ones(3)
    state = optimizer.init(start)
    updates, state = jax.jit(lambda s: optimizer.update(jnp.asarray([0.1249]), s, start, batch=x))(state)
    assert float(state.evidence.ratio) < 0  # the full step of Gauss-Newton overshoots the root
    assert float(updates[0]) == 0
    np.testing.assert_allclose(float(state.kept.level), 2e-12)


def test_parameters_have_the_precision_of_everything():
    x = np.linspace(0.0, 1.0, 9)
    fit = lambda p, x: jnp.exp(-p * x) - jnp.exp(-2 * x)  # noqa: E731
    found = natgrad.least_squares(fit, jnp.asarray(0.5, jnp.float32), x, target=1e-6)
    assert (found.success, found.parameters.dtype, found.residuals.dtype) == (True, jnp.float32, jnp.float32)


def test_a_result_is_short_and_has_a_picture():
    history = {"loss": np.asarray([4.0, 1.0, 0.25])}
    counts = {"nit": 3, "accepted": 2, "success": True, "status": 1, "seconds": 1.5}
    counts |= {"optimality": 0.0, "cosine": 0.0, "covariance": None}
    big = jnp.ones(10**4)
    found = LeastSquaresResult(
        parameters=big, loss=0.25, residuals=big, message="done", history=history, **counts
    )
    assert repr(found) == "LeastSquaresResult: loss 0.25\n  3 steps, 2 of them taken, 1.5 s: done"
    assert found._repr_html_().count("data:image/png;base64,") == 1
