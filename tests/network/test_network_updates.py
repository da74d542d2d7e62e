"""Dampings, lengths, back-tracking and whole methods of networks."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from network_cases import (
    OUTPUTS,
    measured_on,
    mlp,
    odd,
    odd_parameters,
    preconditioned,
    printed_metric,
    problem,
    row_gradients,
    solved,
)

from natgrad.core import TAKEN
from natgrad.errors import InputError
from natgrad.layers import convolution, outputs, perceptron
from natgrad.layers.task import Examples, Task, TaskBatch, supervised, task_loss
from natgrad.metrics import curvature, empirical, probing, units
from natgrad.metrics.blocks import split
from natgrad.models.network import presets
from natgrad.solvers import whole
from natgrad.solvers.direct import direct
from natgrad.solvers.truncated import conjugate_gradient, little_progress, small_residual
from natgrad.solvers.unit_cg import unit_conjugate_gradient as unit_gradients
from natgrad.updates import damping as dampings
from natgrad.updates import lengths, reduction
from natgrad.updates.first_order import inverse_time
from natgrad.updates.natural import Options, natural
from natgrad.updates.reduction import Line

KEY = jax.random.key(0)


def quadratic_line(rate_of_exactness=1.0, curving=1.0, steps=0):
    """1 - slope rate + (1/2) curving curvature rate^2 with slope = curvature = 2: exact for curving 1."""
    value = lambda rate: 1 - 2 * rate + curving * rate**2  # noqa: E731
    two = jnp.asarray(2.0)
    return Line(jnp.asarray(steps), lambda: jnp.asarray(1.0), value, two, two)


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_the_reduction_ratio_is_one_on_a_quadratic_and_the_printed_one_is_not(rate):
    line, rate = quadratic_line(), jnp.asarray(rate)
    np.testing.assert_allclose(reduction.reduction_ratio(line, rate), 1)
    np.testing.assert_allclose(reduction.first_order_ratio(line, rate), 1 - rate / 2)


@pytest.mark.parametrize(
    ("ratio", "factor"), [(0.9, 1 / 1.5), (0.76, 1 / 1.5), (0.5, 1), (0.24, 1.5), (-1, 1.5), (np.nan, 1.5)]
)
def test_levenberg_and_marquardt_follow_the_ratio(ratio, factor):
    damping = dampings.levenberg_marquardt(2.0)
    np.testing.assert_allclose(damping.renew(jnp.asarray(2.0), jnp.asarray(ratio)), 2 * factor)
    held = dampings.levenberg_marquardt(1.0, bounds=(1.0, 1.0))
    assert held.renew(jnp.asarray(1.0), jnp.asarray(ratio)) == 1


@pytest.mark.slow
def test_levenberg_and_marquardt_may_look_at_some_steps_only():
    """With `every` 3 the ratio is computed, and the damping changed, at steps 0, 3, ... only."""
    task, parameters, rows = problem("softmax")
    method = truncated(task, damping=dampings.levenberg_marquardt(0.5, every=3))
    state, step = jax.jit(method.init)(KEY, parameters, TaskBatch(rows)), jax.jit(method.step)
    for number in range(5):
        before = float(state.direction.level)
        state, info = step(KEY, state, TaskBatch(rows))
        ratio, after = float(info.evidence.evidence.ratio), float(state.direction.level)
        assert info.result == TAKEN
        if number % 3 == 0:
            np.testing.assert_allclose(
                after, before * (1.5 if ratio < 0.25 else 1 / 1.5 if ratio > 0.75 else 1)
            )
        else:
            assert np.isnan(ratio)
            assert after == before
    assert after != 0.5


def test_an_adaptive_damping_needs_a_length():
    """The ratio is that of a step: without a length there is none."""
    metric = curvature.fisher()(problem("softmax")[0])
    with pytest.raises(ValueError, match="looks at the loss after a step; give the options a length"):
        natural(metric, EXACT, Options(damping=dampings.levenberg_marquardt(0.1)))


def test_scheduled_damping_is_the_schedule_at_every_step():
    damping = dampings.scheduled(lambda t: 4.0 / (1 + t.astype(float)))
    now = jnp.asarray(damping.start)
    for step in range(3):
        np.testing.assert_allclose(damping.strength(jnp.asarray(step), now), 4 / (1 + step))
        now = damping.renew(now, jnp.nan)


def test_lengths():
    line = quadratic_line(steps=220)
    assert lengths.learning_rate(0.3)(line) == 0.3
    assert lengths.learning_rate(lambda t: t.astype(float) / 1000)(line) == 0.22
    assert lengths.learning_rate(inverse_time(0.5))(line) == 0.25  # 0.5 / (1 + 20 / 20)
    assert lengths.learning_rate(inverse_time(0.5))(quadratic_line(steps=200)) == 0.5
    np.testing.assert_allclose(lengths.divergence_ball(0.01)(line), 0.1)  # (1/2) 0.1^2 2 = 0.01
    assert lengths.divergence_ball(5.0)(line) == 1
    assert lengths.divergence_ball(5.0, longest=lengths.learning_rate(0.3))(line) == 0.3


def test_the_line_search_shrinks_until_the_loss_falls():
    assert lengths.line_search()(quadratic_line()) == 1
    found = lengths.line_search(2.0)(quadratic_line())  # 1 - 2r + r^2 falls for r < 2 (1 - share)
    np.testing.assert_allclose(found, 1.6)
    steep = lengths.line_search()(quadratic_line(curving=10.0))  # falls for r < 0.198
    np.testing.assert_allclose(steep, 0.8**8)
    never = quadratic_line()._replace(value=lambda rate: 2 + rate)
    assert lengths.line_search(tries=5)(never) == 0
    broken = quadratic_line()._replace(value=lambda rate: jnp.where(rate > 0.5, jnp.nan, 0.0))
    assert 0 < lengths.line_search()(broken) <= 0.5


@pytest.mark.parametrize(
    ("values", "kept", "best"),
    [
        ([5, 4, 3, 2], 4, 3),
        ([5, 1, 3, 4], 4, 1),
        ([1, 2, 3, 4], 4, 0),
        ([9, 1, 5, 2, 0], 3, 1),
        ([3, 1, 9, 2], 4, 3),
        ([2, 1, np.nan], 3, 1),
    ],
)
def test_back_tracking_walks_back_while_it_gets_better(values, kept, best):
    table = jnp.asarray(values, float)
    value = lambda x: table[x["at"].astype(int)]  # noqa: E731
    found, left = reduction.backtrack(value, {"at": jnp.arange(len(values), dtype=float)}, jnp.asarray(kept))
    assert found["at"] == best
    assert left == (best != kept - 1)


def test_bad_settings_say_what_to_give():
    with pytest.raises(InputError, match="damping must be zero or positive, got -1"):
        dampings.constant(-1)
    with pytest.raises(InputError, match="shrinks by a number between 0 and 1, got 1"):
        lengths.line_search(shrink=1.0)
    with pytest.raises(InputError, match="radius of a divergence ball must be positive, got 0"):
        lengths.divergence_ball(0)


def truncated(task, *, metric=None, solver=None, length=None, **options):
    """A step of length one by the Fisher metric and conjugate gradients, but for what is given."""
    length = lengths.learning_rate(1.0) if length is None else length
    metric = curvature.fisher() if metric is None else metric
    solver = conjugate_gradient(20) if solver is None else solver
    return presets.truncated(task, metric, solver, Options(length=length, **options))


def step_of(method, parameters, batch, key=KEY):
    def run():
        state = method.init(key, parameters, batch)
        return method.step(key, state, batch)

    return jax.jit(run)()


def dense_direction(matrix, gradient, damping):
    right = flat(gradient)
    return np.linalg.solve(matrix + damping * np.eye(right.size), right)


def flat(tree):
    """As `ravel_pytree` has it, in NumPy."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def near(found, expected, tolerance=1e-7):
    found, expected = (flat(t) for t in (found, expected))
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


EXACT = conjugate_gradient(200, stop=small_residual(1e-12))


@pytest.mark.slow
def test_the_metric_may_see_the_same_other_or_unlabeled_rows():
    task, parameters, rows = problem("softmax", rows=6)
    other = Examples(rows.inputs[:4] + 1)
    method = truncated(task, solver=EXACT, length=lengths.learning_rate(0.5))
    for metric in (None, other):
        _, info = step_of(method, parameters, TaskBatch(rows, metric))
        g = printed_metric("softmax", task, parameters, rows if metric is None else metric)
        near(info.update, -0.5 * dense_direction(g, info.gradient, 1e-2))
        near(info.gradient, jax.jit(jax.grad(lambda p: task_loss(task, p, rows)))(parameters), 1e-12)


@pytest.mark.slow
def test_damping_relative_to_the_mean_diagonal_makes_scale_disappear():
    """A loss (and metric) a thousand times larger gives the same direction."""
    task, parameters, rows = problem("linear")
    loud = Task(task.network, outputs.linear(0.7 / np.sqrt(1000)))
    method = lambda t: truncated(t, solver=EXACT, damping=dampings.constant(0.1), relative=True)  # noqa: E731
    soft, strong = (step_of(method(t), parameters, TaskBatch(rows))[1] for t in (task, loud))
    near(soft.update, strong.update)


def test_damping_to_infinity_is_plain_descent():
    task, parameters, rows = problem("sigmoid")
    method = truncated(task, damping=dampings.constant(1e9), length=lengths.learning_rate(1e9))
    _, info = step_of(method, parameters, TaskBatch(rows))
    near(info.update, jax.tree.map(jnp.negative, info.gradient), 1e-6)


def test_evidence_tells_curvature_residual_and_ratio_without_a_product():
    task, parameters, rows = problem("softmax")
    method = truncated(
        task,
        solver=conjugate_gradient(4),
        damping=dampings.levenberg_marquardt(0.3),
        length=lengths.learning_rate(0.7),
    )
    _, info = step_of(method, parameters, TaskBatch(rows))
    evidence, g = info.evidence.evidence, printed_metric("softmax", task, parameters, rows)
    step, slope = flat(info.update), flat(info.gradient)
    np.testing.assert_allclose(evidence.divergence, step @ g @ step / 2, rtol=1e-8)
    after = jax.jit(lambda p, step: task_loss(task, jax.tree.map(jnp.add, p, step), rows))(
        parameters, info.update
    )
    ratio = (float(after) - float(info.value)) / (slope @ step + step @ g @ step / 2)
    np.testing.assert_allclose(evidence.ratio, ratio, rtol=1e-6)
    left = np.linalg.norm(slope + (g + 0.3 * np.eye(len(g))) @ step / 0.7) / np.linalg.norm(slope)
    np.testing.assert_allclose(evidence.residual, left, rtol=1e-6)
    numbers = jax.jit(method.describe)(info)
    np.testing.assert_allclose(numbers["step_kl"], evidence.divergence, rtol=1e-12)
    np.testing.assert_allclose(numbers["residual"], left, rtol=1e-6)
    assert (numbers["rate"], numbers["damping"], numbers["solver_iterations"]) == (
        0.7,
        0.3,
        int(evidence.iterations),
    )


def test_the_divergence_ball_makes_steps_of_that_divergence():
    task, parameters, rows = problem("softmax")
    method = truncated(task, solver=EXACT, length=lengths.divergence_ball(1e-4))
    _, info = step_of(method, parameters, TaskBatch(rows))
    moved = jax.tree.map(jnp.add, parameters, info.update)
    old, new = (jax.nn.log_softmax(task.network(p, rows.inputs)) for p in (parameters, moved))
    divergence = (jnp.exp(old) * (old - new)).sum(1).mean()
    np.testing.assert_allclose(divergence, 1e-4, rtol=0.05)


def test_a_warm_start_begins_the_solve_at_a_share_of_the_last_direction():
    task, parameters, rows = problem("softmax")
    method = truncated(task, solver=conjugate_gradient(3), warm_start=0.8, length=lengths.learning_rate(0.0))
    state, step = jax.jit(method.init)(KEY, parameters, TaskBatch(rows)), jax.jit(method.step)
    residuals = []
    for _ in range(3):  # nothing moves, so the same system is solved further and further
        state, info = step(KEY, state, TaskBatch(rows))
        residuals.append(float(info.evidence.evidence.residual))
    assert residuals[2] < residuals[1] < residuals[0]


def test_a_step_that_is_not_finite_is_not_taken_and_raises_the_damping():
    task = Task(lambda p, x: jnp.sqrt(p - x), outputs.linear())
    rows = Examples(jnp.zeros((1, 1)), jnp.full((1, 1), -9.0))
    method = truncated(task, damping=dampings.levenberg_marquardt(1e-3), length=lengths.learning_rate(50.0))
    parameters = jnp.ones((1, 1))
    state, info = step_of(method, parameters, TaskBatch(rows))
    assert (state.model == parameters).all()
    assert info.result != TAKEN
    assert np.isnan(info.evidence.evidence.ratio)
    np.testing.assert_allclose(state.direction.level, 1.5e-3)


def train(method, parameters, batch, steps):
    def run():
        state = method.init(KEY, parameters, batch)
        body = lambda state, key: (lambda s, i: (s, (i.value, i.result)))(*method.step(key, state, batch))  # noqa: E731
        return jax.lax.scan(body, state, jax.random.split(KEY, steps))

    return jax.jit(run)()


def digits_like(rows=40):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3))
    return Examples(jnp.asarray(x), jnp.asarray((np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] > 0).astype(int)))


def methods(task):
    return {
        "sgd": (presets.plain(task, optax.sgd(0.3)), 12),
        "natural": (presets.natural_network(task, rate=0.5, damping=0.05), 12),
        "hessian-free": (presets.hessian_free(task, iterations=30, damping=0.1), 12),
        "tonga": (presets.tonga(task, rate=0.2), 12),
        "units": (presets.unit_blocks(task.output, optax.sgd(0.2), damping=0.05), 12),
    }


@pytest.mark.slow
def test_every_preset_descends_and_the_second_order_ones_faster_than_sgd():
    task, rows = Task(perceptron.perceptron(), outputs.softmax()), digits_like()
    final = {}
    for name, (method, steps) in methods(task).items():
        state, (values, results) = train(method, mlp((3, 6, 2)), TaskBatch(rows), steps)
        assert (np.asarray(results) == TAKEN).all()
        final[name] = float(task_loss(task, state.model, rows))
        assert final[name] < values[0]
    assert final["hessian-free"] < final["natural"] < final["sgd"]
    assert final["units"] < final["sgd"]


@pytest.mark.slow
def test_krylov_subspace_descent_descends_every_step():
    task, rows = Task(perceptron.perceptron(), outputs.softmax()), digits_like()
    _, (values, _) = train(presets.krylov_descent(task), mlp((3, 6, 2)), TaskBatch(rows), 6)
    assert (np.diff(values) < 0).all()


@pytest.mark.slow
def test_hessian_free_is_its_parts():
    """The preset equals the parts it names, put together by hand."""
    task, parameters, rows = problem("softmax")
    by_hand = truncated(
        task,
        metric=empirical.with_diagonal(curvature.gauss_newton(), empirical.squared_gradients()),
        solver=conjugate_gradient(15, stop=little_progress(5e-4), keep=1.3, precondition=0.75),
        damping=dampings.levenberg_marquardt(1.0),
        length=lengths.line_search(),
        warm_start=0.95,
    )
    _, preset = step_of(presets.hessian_free(task, iterations=15), parameters, TaskBatch(rows))
    _, ours = step_of(by_hand, parameters, TaskBatch(rows))
    near(preset.update, ours.update, 1e-12)
    moved = jax.tree.map(jnp.add, parameters, preset.update)
    assert task_loss(task, moved, rows) < preset.value


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["sigmoid", "softmax"])
def test_unit_blocks_are_the_blocks_of_the_full_metric(name):
    layers = mlp((2, 3, 3))
    task = Task(perceptron.perceptron(), OUTPUTS[name])
    x = jnp.asarray(np.random.default_rng(1).normal(size=(5, 2)))

    @jax.jit
    def measured(layers):
        full = probing.dense(measured_on(curvature.fisher(), task, layers, Examples(x)))
        return [blocks.dense() for blocks in blocks_of(units.exact_units(jnp.tanh), task, layers, x)], full

    found, full = jax.tree.map(np.asarray, measured(layers))
    places = jax.tree.map(np.asarray, ravel_pytree(layers)[1](jnp.arange(len(full), dtype=float)))
    for layer, blocks in zip(places, found, strict=True):
        for unit, block in enumerate(blocks):
            where = np.append(layer.weight[unit], layer.bias[unit]).astype(int)
            np.testing.assert_allclose(block, full[np.ix_(where, where)], rtol=1e-9, atol=1e-12)


def blocks_of(metric, task, layers, inputs, key=KEY):
    return measured_on(metric, task, layers, Examples(inputs), key).blocks


@pytest.mark.slow
def test_sampled_unit_blocks_are_unbiased():
    layers, task = mlp((2, 2, 3)), Task(perceptron.perceptron(), outputs.softmax())
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 2)))
    joined = lambda blocks: jnp.concatenate([b.curvature.ravel() for b in blocks])  # noqa: E731
    exact = jax.jit(lambda: joined(blocks_of(units.exact_units(jnp.tanh), task, layers, x)))()
    one = lambda k: joined(blocks_of(units.sampled_units(jnp.tanh, 2), task, layers, x, k))  # noqa: E731
    found = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(KEY, 3000)))
    z = (found.mean(0) - exact) / (found.std(0) / np.sqrt(3000))
    assert np.abs(z).max() < 5


def test_unit_blocks_refuse_what_is_no_perceptron_and_outputs_without_parts():
    output, x = outputs.softmax(), jnp.zeros((1, 3))
    exact, sampled = units.exact_units(jnp.tanh), units.sampled_units(jnp.tanh)
    task = lambda output: Task(perceptron.perceptron(), output)  # noqa: E731
    with pytest.raises(InputError, match="unit blocks need a perceptron"):
        blocks_of(exact, task(output), (jnp.zeros(3),), x)
    with pytest.raises(InputError, match="need a distribution with `root`"):
        blocks_of(exact, task(output._replace(root=None)), mlp(), x)
    with pytest.raises(InputError, match="need a distribution with `sample`"):
        blocks_of(sampled, task(output._replace(sample=None)), mlp(), x)


@pytest.mark.slow
def test_centered_and_uncentered_covariance_give_collinear_directions():
    """U's direction is C's, shorter by 1 + g^T (damping + C)^-1 g."""
    task, parameters, rows = problem("softmax", rows=4)
    found = {}
    for name, metric in (("c", empirical.centered_covariance()), ("u", empirical.uncentered_covariance())):
        method = truncated(task, metric=metric, solver=whole.dual_solve(), damping=dampings.constant(0.1))
        _, info = step_of(method, parameters, TaskBatch(rows))
        found[name] = -flat(info.update)
    gradient = flat(info.gradient)
    np.testing.assert_allclose(found["u"] * (1 + gradient @ found["c"]), found["c"], rtol=1e-8)


@pytest.mark.slow
def test_steps_work_under_vmap_over_seeds():
    task, rows = Task(odd, OUTPUTS["softmax"]), problem("softmax")[2]
    method = presets.natural_network(task, damping=0.1, iterations=5)
    models = [odd_parameters(seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)

    def one(model):
        return method.step(KEY, method.init(KEY, model, TaskBatch(rows)), TaskBatch(rows))[0].model

    together = jax.jit(jax.vmap(one))(stacked)
    near(jax.tree.map(lambda leaf: leaf[1], together), jax.jit(one)(models[1]), 1e-8)


def test_a_natural_step_does_not_depend_on_the_parametrization():
    """Without damping, to first order: parameters scaled and mixed move the outputs in the same way."""
    task = Task(lambda p, x: jnp.tanh(x @ p["a"]) + p["b"], outputs.linear())
    rng = np.random.default_rng(0)
    rows = Examples(jnp.asarray(rng.normal(size=(9, 2))), jnp.asarray(rng.normal(size=(9, 1))))
    mixing = jnp.asarray([[2.0, 1.0], [-1.0, 0.5]])
    there = Task(lambda p, x: task.network({"a": mixing @ p["a"], "b": 10 * p["b"]}, x), task.output)
    start = {"a": jnp.asarray(rng.normal(size=(2, 1))), "b": jnp.asarray([0.3])}
    mapped = {"a": jnp.linalg.solve(mixing, start["a"]), "b": start["b"] / 10}
    exact = {"solver": whole.dense_solve(), "damping": dampings.constant(0.0)}
    method = lambda t: truncated(t, length=lengths.learning_rate(1e-3), **exact)  # noqa: E731
    after = [step_of(method(t), p, TaskBatch(rows))[0].model for t, p in ((task, start), (there, mapped))]
    near({"a": mixing @ after[1]["a"], "b": 10 * after[1]["b"]}, after[0], 1e-9)


@pytest.mark.parametrize(
    ("solver", "tolerance"),
    [(None, 1e-3), (unit_gradients(40), 1e-8), (direct(), 1e-10)],
    ids=["usual", "cg", "direct"],
)
@pytest.mark.few(1)
def test_blocks_of_units_solve_like_dense_blocks(solver, tolerance):
    """The default is truncated; LAPACK calls of the direct solver wait for each other, layer by layer."""
    layers, rows = mlp((3, 4, 2)), digits_like(12)
    method = presets.unit_blocks(outputs.softmax(), optax.sgd(1.0), damping=0.1, solver=solver)
    _, info = step_of(method, layers, TaskBatch(rows))
    assert info.result == TAKEN
    places = jax.tree.map(np.asarray, ravel_pytree(layers)[1](jnp.arange(26, dtype=float)))
    full = printed_metric("softmax", Task(perceptron.perceptron(), outputs.softmax()), layers, rows)
    length = 0.0
    for layer, g, d in zip(places, info.gradient, info.direction, strict=True):
        where = np.concatenate([layer.weight, layer.bias[:, None]], axis=1).astype(int)
        blocks = np.stack([full[np.ix_(unit, unit)] for unit in where])
        left = blocks + 0.1 * np.eye(where.shape[1])
        right = np.concatenate([g.weight, g.bias[:, None]], axis=1)[..., None]
        near(d, split(jnp.asarray(np.linalg.solve(left, right)[..., 0])), tolerance)
        vectors = np.concatenate([d.weight, d.bias[:, None]], axis=1)
        length += np.einsum("ui,uij,uj->", vectors, blocks, vectors)
    np.testing.assert_allclose(info.evidence.curvature, length, rtol=1e-9)


@pytest.mark.parametrize("count", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 6))])
@pytest.mark.slow
def test_a_metric_with_a_diagonal_gives_the_iterates_of_its_preconditioner(count):
    """Gauss-Newton, divided by (diag(U) + damping)^0.75, against conjugate gradients by the book."""
    task, parameters, rows = problem("softmax")
    metric = empirical.with_diagonal(curvature.gauss_newton(), empirical.squared_gradients(rows_at_once=2))
    gradient = jax.jit(jax.grad(lambda p: task_loss(task, p, rows)))(parameters)
    never = lambda progress: jnp.asarray(False)  # noqa: E731
    solver = conjugate_gradient(count, stop=never, precondition=0.75)
    solve = lambda p, g: solved(solver, measured_on(metric, task, p, rows), g, 0.2)  # noqa: E731
    found = jax.jit(solve)(parameters, gradient)
    matrix = printed_metric("softmax", task, parameters, rows)
    g, right = row_gradients(task, parameters, rows), flat(gradient)
    inverse = ((g**2).mean(axis=0) + 0.2) ** -0.75
    expected = preconditioned(matrix + 0.2 * np.eye(len(matrix)), right, inverse, count)[-1]
    np.testing.assert_allclose(flat(found.value), expected, rtol=1e-8)


def test_bad_batches_are_refused_in_one_sentence():
    task, parameters, rows = problem("softmax")
    estimate = supervised(task).estimate
    wrong = {
        "every leaf of the parameters .* \\['count'\\] is int": (
            {**parameters, "count": jnp.arange(2)},
            TaskBatch(rows),
        ),
        "have no targets; only the metric's rows may be unlabeled": (
            parameters,
            TaskBatch(Examples(rows.inputs)),
        ),
        "labels 0 to 2, got 7": (parameters, TaskBatch(rows._replace(targets=jnp.full(5, 7)))),
        "one class number per row, of shape \\(5,\\), got \\(5, 1\\)": (
            parameters,
            TaskBatch(rows._replace(targets=jnp.ones((5, 1), int))),
        ),
        "rows of probabilities that sum to one, got a row that sums to 3": (
            parameters,
            TaskBatch(rows._replace(targets=jnp.ones((5, 3)))),
        ),
        "metric batch must be like the gradient's, float64\\[2\\], got float64\\[3\\]": (
            parameters,
            TaskBatch(rows, Examples(jnp.ones((5, 3)))),
        ),
        "at least one row, got none": (parameters, TaskBatch(Examples(rows.inputs[:0], rows.targets[:0]))),
        "the parameters have no leaves": ({}, TaskBatch(rows)),
    }
    for message, (model, batch) in wrong.items():
        with pytest.raises(InputError, match=message):
            estimate(KEY, (), model, batch)


def test_bad_targets_and_networks_are_refused_in_one_sentence():
    _, parameters, rows = problem("softmax")
    cases = [
        ("sigmoid", jnp.full((5, 3), 1.5), "targets from 0 to 1, got 1.5"),
        ("sigmoid", jnp.ones((5, 2)), "outputs' shape \\(5, 3\\), got \\(5, 2\\)"),
        ("linear", jnp.full((5, 3), jnp.nan), "expects finite targets"),
        ("linear", jnp.ones((5, 3), complex), "expects real targets, got complex"),
    ]
    for name, targets, message in cases:
        with pytest.raises(InputError, match=message):
            supervised(Task(odd, OUTPUTS[name])).estimate(
                KEY, (), parameters, TaskBatch(Examples(rows.inputs, targets))
            )
    networks_ = [
        (lambda p, x: odd(p, x).sum(), "with the 5 rows first, got shape \\(\\)"),
        (lambda p, x: (odd(p, x),), "with the 5 rows first, got a tree"),
        (lambda p, x: odd(p, x).astype(int), "floating-point outputs, got int"),
    ]
    for network, message in networks_:
        with pytest.raises(InputError, match=message):
            supervised(Task(network, OUTPUTS["linear"])).estimate(KEY, (), parameters, TaskBatch(rows))


def test_wrong_labels_inside_jit_are_not_taken():
    task, parameters, rows = problem("softmax")
    for targets in (jnp.full(5, 3), jnp.full(5, -1)):
        assert np.isnan(task_loss(task, parameters, rows._replace(targets=targets)))
    task, parameters, rows = problem("sigmoid")
    assert np.isnan(task_loss(task, parameters, rows._replace(targets=jnp.full((5, 3), 1.1))))


def test_networks_of_wrong_sizes_are_refused():
    with pytest.raises(InputError, match=r"at least two positive sizes .* got \(3,\)"):
        perceptron.fresh_perceptron(KEY, (3,))
    with pytest.raises(InputError, match="images of 8 x 8 are too small for 2 banks of 5 x 5"):
        convolution.fresh_convolutional(KEY, (1, 8, 8), (2, 3), (4,))


def test_the_convolutional_network_is_its_loops():
    p = convolution.fresh_convolutional(KEY, (2, 7, 6), (3,), (4, 2), width=2)
    x = np.random.default_rng(0).normal(size=(2, 2, 7, 6))
    kernel, sums = np.asarray(p.filters[0].kernel), np.zeros((2, 3, 6, 5))
    for i in range(6):
        for j in range(5):
            sums[:, :, i, j] = np.einsum("rchw,fchw->rf", x[:, :, i : i + 2, j : j + 2], kernel)
    pooled = sums[:, :, :6, :4].reshape(2, 3, 3, 2, 2, 2).max(axis=(3, 5)).reshape(2, -1)
    hidden = np.tanh(np.tanh(pooled) @ np.asarray(p.layers[0].weight).T)
    expected = hidden @ np.asarray(p.layers[1].weight).T
    np.testing.assert_allclose(convolution.convolutional()(p, jnp.asarray(x)), expected, atol=1e-12)
