"""The optax transformation: in chains, under jit and scan, with other rows, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from network_cases import expected_direction, odd, printed_metric, problem

import natgrad.optax as ng
from natgrad.errors import InputError
from natgrad.layers.task import task_loss

EXACT = ng.conjugate_gradient(200, stop=ng.small_residual(1e-12))


def near(found, expected, tolerance=1e-7):
    found, expected = (np.asarray(ravel_pytree(t)[0]) for t in (found, expected))
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


def once(transformation, gradients, parameters, **extra):
    run = lambda g: transformation.update(g, transformation.init(parameters), parameters, **extra)  # noqa: E731
    return jax.jit(run)(gradients)


def loss_gradient(task, parameters, rows):
    """The gradient of the loss, compiled whole."""
    return jax.jit(jax.grad(lambda p: task_loss(task, p, rows)))(parameters)


def test_the_update_is_the_damped_natural_direction():
    task, parameters, rows = problem("softmax")
    gradients = loss_gradient(task, parameters, rows)
    found, state = once(
        ng.natural_gradient(odd, ng.softmax(), damping=0.1), gradients, parameters, inputs=rows.inputs
    )
    near(found, expected_direction("softmax", task, parameters, rows, gradients, 0.1))
    assert state.kept.steps == 1
    assert state.evidence.damping == 0.1


@pytest.mark.slow
def test_the_metric_may_see_other_unlabeled_rows():
    task, parameters, rows = problem("softmax")
    gradients = loss_gradient(task, parameters, rows)
    other = rows._replace(inputs=rows.inputs[:3] - 1)
    found, _ = once(
        ng.natural_gradient(odd, ng.softmax(), damping=0.1),
        gradients,
        parameters,
        inputs=rows.inputs,
        metric_inputs=other.inputs,
    )
    near(found, expected_direction("softmax", task, parameters, other, gradients, 0.1))


def test_it_works_in_a_chain_inside_scan_and_lowers_the_loss():
    task, parameters, rows = problem("softmax")
    optimizer = ng.linked(
        ng.natural_gradient(
            odd, ng.softmax(), damping=ng.levenberg_marquardt(0.1), metric=ng.monte_carlo_fisher(2)
        ),
        optax.clip_by_global_norm(1.0),
        optax.add_decayed_weights(1e-4),
        optax.scale_by_learning_rate(optax.cosine_decay_schedule(0.5, 30)),
    )
    value = lambda p: task_loss(task, p, rows)  # noqa: E731

    def step(carry, _):
        p, state = carry
        before, gradients = jax.value_and_grad(value)(p)
        updates, state = optimizer.update(gradients, state, p, inputs=rows.inputs, targets=rows.targets)
        return (optax.apply_updates(p, updates), state), before

    run = jax.jit(lambda p: jax.lax.scan(step, (p, optimizer.init(p)), None, length=30))
    with jax.numpy_dtype_promotion("standard"):  # optax's schedules mix integers and floats
        (_, state), values = run(parameters)
    assert values[-1] < 0.5 * values[0]
    assert np.isfinite(state.evidence.ratio)
    with pytest.raises(InputError, match="no part of this sequence is a natural_gradient"):
        _ = ng.linked(optax.scale(1.0)).init(parameters).evidence
    assert jax.tree.structure(state) == jax.tree.structure(optimizer.init(parameters))


def test_lengths_come_with_options_and_look_at_value_fn():
    task, parameters, rows = problem("softmax")
    value = jax.jit(lambda p: task_loss(task, p, rows))
    options = ng.Options(length=ng.line_search(64.0), damping=ng.constant(0.5))
    found, state = once(
        ng.natural_gradient(odd, ng.softmax(), solver=EXACT, options=options),
        loss_gradient(task, parameters, rows),
        parameters,
        inputs=rows.inputs,
        value_fn=value,
    )
    assert 0 < state.evidence.rate < 64
    assert value(jax.tree.map(jnp.subtract, parameters, found)) < value(parameters)


@pytest.mark.slow
def test_an_adaptive_damping_follows_the_ratio_of_the_direction_itself():
    """Without a length of its own a step is checked at length one."""
    task, parameters, rows = problem("softmax")
    gradients = loss_gradient(task, parameters, rows)
    damping = ng.levenberg_marquardt(0.3)
    rows_of = {"inputs": rows.inputs, "targets": rows.targets}
    for given in ({"damping": damping}, {"options": ng.Options(damping=damping)}):
        chosen = ng.natural_gradient(odd, ng.softmax(), solver=EXACT, **given)
        found, state = once(chosen, gradients, parameters, **rows_of)
        near(found, expected_direction("softmax", task, parameters, rows, gradients, 0.3))
        step, slope = (np.asarray(ravel_pytree(t)[0]) for t in (found, gradients))
        metric = printed_metric("softmax", task, parameters, rows)
        after = task_loss(task, jax.tree.map(jnp.subtract, parameters, found), rows)
        ratio = (after - task_loss(task, parameters, rows)) / (-slope @ step + step @ metric @ step / 2)
        np.testing.assert_allclose(state.evidence.ratio, ratio, rtol=1e-6)
        factor = 1.5 if ratio < 0.25 else 1 / 1.5 if ratio > 0.75 else 1
        np.testing.assert_allclose(state.kept.level, 0.3 * factor)


def test_a_metric_of_targets_is_kept_if_examples_have_them():
    _, parameters, rows = problem("softmax")
    kept = ng.natural_gradient(
        odd,
        ng.softmax(),
        metric=ng.kronecker_blocks(ng.uncentered_covariance()),
        solver=ng.factored_solve(),
        options=ng.Options(refresh=2),
        example=rows.inputs,
        example_targets=rows.targets,
    )
    with pytest.warns(UserWarning, match="not all parameters belong to layers"):
        found, state = once(kept, parameters, parameters, inputs=rows.inputs, targets=rows.targets)
    assert int(state.kept.age) == 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


def test_a_damping_is_a_number_a_schedule_or_what_is_injected():
    _, parameters, rows = problem("softmax")
    numbers = {}
    for name, damping in {"number": 0.3, "schedule": optax.constant_schedule(0.3)}.items():
        transformation = ng.natural_gradient(odd, ng.softmax(), damping=damping)
        numbers[name] = once(transformation, parameters, parameters, inputs=rows.inputs)[0]
    injected = optax.inject_hyperparams(
        lambda damping: ng.natural_gradient(odd, ng.softmax(), damping=damping)
    )
    with jax.numpy_dtype_promotion("standard"):
        numbers["injected"] = once(injected(damping=0.3), parameters, parameters, inputs=rows.inputs)[0]
    for found in numbers.values():
        for one, other in zip(*map(jax.tree.leaves, (found, numbers["number"])), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.slow
def test_float32_parameters_stay_float32_also_where_float64_is_enabled():
    _, parameters, rows = problem("softmax")
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (parameters, rows.inputs))
    transformation = ng.natural_gradient(
        odd, ng.softmax(), damping=ng.levenberg_marquardt(1.0), solver=ng.minres_qlp(5)
    )
    found, state = once(transformation, low[0], low[0], inputs=low[1], targets=rows.targets)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype("float32")}
    assert state.kept.level.dtype == jnp.float32


def test_what_cannot_be_measured_is_refused_in_one_sentence():
    _, parameters, rows = problem("softmax")
    natural = ng.natural_gradient(odd, ng.softmax())
    state, x = natural.init(parameters), rows.inputs
    calls = [
        ("needs the parameters; call update", (parameters, state), {"inputs": x}),
        ("needs the inputs; call update", (parameters, state, parameters), {}),
        ("the same structure", (parameters["deep"], state, parameters), {"inputs": x}),
        (
            "one number, got shape \\(5, 3\\); take its mean",
            (parameters, state, parameters),
            {"inputs": x, "value_fn": lambda p: odd(p, x)},
        ),
        ("labels 0 to 2, got 3", (parameters, state, parameters), {"inputs": x, "targets": jnp.full(5, 3)}),
        (
            "must be like the gradient's",
            (parameters, state, parameters),
            {"inputs": x, "metric_inputs": x[:, :1]},
        ),
    ]
    for message, arguments, extra in calls:
        with pytest.raises(InputError, match=message):
            natural.update(*arguments, **extra)
    with pytest.raises(InputError, match="must be floating-point, but \\['steps'\\] is int"):
        natural.init({"steps": jnp.zeros((), int), **parameters})
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), parameters)
    with pytest.raises(InputError, match=r"in float32 or float64, but \['bias'\].* is bfloat16; keep"):
        natural.init(half)
    for refresh in (0, 2.5):
        with pytest.raises(InputError, match="refresh: expected"):
            ng.layerwise_gradient(odd, ng.softmax(), x, refresh=refresh)
    with pytest.raises(InputError, match="damping as part of `options` or by itself, got both; give one"):
        ng.natural_gradient(odd, ng.softmax(), damping=0.1, options=ng.Options())
    with pytest.raises(InputError, match=r"natural_gradient cannot keep .* got refresh 5; give example"):
        ng.natural_gradient(odd, ng.softmax(), options=ng.Options(refresh=5))
    searching = ng.natural_gradient(odd, ng.softmax(), options=ng.Options(length=ng.line_search()))
    with pytest.raises(InputError, match="looks at the loss; give update targets"):
        jax.eval_shape(searching.update, parameters, searching.init(parameters), parameters, inputs=x)
