"""Optimizers against their formulas, schedules at their ends, and steps that must not be taken."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cases import machine
from natgrad import config
from natgrad.config import sections
from natgrad.core import NON_FINITE, RESULTS, TAKEN, Estimate, Objective, Pace, stateless
from natgrad.models.helmholtz import methods
from natgrad.records.notes import TrainingProgress
from natgrad.training.session import Session
from natgrad.updates.descent import descent
from natgrad.updates.first_order import OPTIMIZERS, SCHEDULES, Decay, downhill, optimizer_of, steepest

RATE, MOMENTUM, EPS = 0.1, 0.8, 1e-8
START = np.array([1.0, -2.0, 0.5])
GRADIENTS = np.array([[0.3, -0.1, 2.0], [0.1, 0.4, -1.0]])


def adam(one, two, *, nesterov=False):
    """Two steps of [adam], or of [nadam] with Nesterov's look ahead."""
    m1, m2 = (1 - MOMENTUM) * one, (1 - MOMENTUM) * (MOMENTUM * one + two)
    v1, v2 = 0.001 * one**2, 0.001 * (0.999 * one**2 + two**2)
    steps = []
    for t, (m, v, g) in enumerate([(m1, v1, one), (m2, v2, two)], start=1):
        lookahead = MOMENTUM * m / (1 - MOMENTUM ** (t + 1)) + (1 - MOMENTUM) * g / (1 - MOMENTUM**t)
        hat = lookahead if nesterov else m / (1 - MOMENTUM**t)
        steps.append(hat / (np.sqrt(v / (1 - 0.999**t)) + EPS))
    return steps


def rmsprop(one, two):
    v1 = (1 - MOMENTUM) * one**2
    v2 = MOMENTUM * v1 + (1 - MOMENTUM) * two**2
    return one / np.sqrt(v1 + EPS), two / np.sqrt(v2 + EPS)


FORMULAS = {
    "sgd": lambda one, two: (one, two),
    "momentum": lambda one, two: (one, two + MOMENTUM * one),
    "nesterov": lambda one, two: (one + MOMENTUM * one, two + MOMENTUM * (two + MOMENTUM * one)),
    "adam": adam,
    "nadam": partial(adam, nesterov=True),
    "rmsprop": rmsprop,
}


def given(gradients):
    """An objective whose gradients are known, one for every step."""
    rows = jnp.asarray(gradients)
    return Objective(
        lambda key, model, batch: jnp.zeros((), int),
        lambda key, carry, model, batch: (Estimate(jnp.zeros(()), rows[carry], (), {}), carry + 1),
    )


def test_every_optimizer_has_its_formula():
    assert set(FORMULAS) == set(OPTIMIZERS)


@pytest.mark.parametrize("name", FORMULAS)
def test_two_steps_equal_the_formula(name):
    """With a rate that doubles after the first step."""
    rate = lambda steps: RATE * (1.0 + steps)  # noqa: E731
    algorithm = descent(given(GRADIENTS), steepest(), OPTIMIZERS[name](MOMENTUM), scale=downhill(rate))
    key, batch = jax.random.key(0), jnp.zeros(())
    with jax.numpy_dtype_promotion("standard"):
        state, step = jax.jit(algorithm.init)(key, jnp.asarray(START), batch), jax.jit(algorithm.step)
        for _ in GRADIENTS:
            before = state
            state, info = step(key, before, batch)
            moved = np.asarray(before.model) + np.asarray(info.update)
            np.testing.assert_allclose(state.model, moved, atol=1e-14, rtol=0)
    first, second = FORMULAS[name](*GRADIENTS)
    np.testing.assert_allclose(state.model, START - RATE * (first + 2 * second), atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_weights_decay_beside_the_direction_and_biases_do_not(name):
    """The decay is no part of the optimizer's averages [loshchilov2019]."""
    chosen = sections.Optimizer(name=name, weight_decay=0.3, momentum=None if name == "sgd" else MOMENTUM)
    start = {"weight": jnp.asarray(START)[None], "bias": jnp.asarray(START)}
    both = jax.tree.map(lambda leaf: jnp.asarray(GRADIENTS).reshape(2, *leaf.shape), start)
    objective = Objective(
        lambda key, model, batch: jnp.zeros((), int),
        lambda key, carry, model, batch: (
            Estimate(jnp.zeros(()), jax.tree.map(lambda leaf: leaf[carry], both), (), {}),
            carry + 1,
        ),
    )
    algorithm = descent(objective, steepest(), optimizer_of(chosen), scale=downhill(lambda steps: RATE))
    key, batch = jax.random.key(0), jnp.zeros(())
    with jax.numpy_dtype_promotion("standard"):
        state, step = jax.jit(algorithm.init)(key, start, batch), jax.jit(algorithm.step)
        for _ in GRADIENTS:
            state, _ = step(key, state, batch)
    first, second = FORMULAS[name](*GRADIENTS)
    np.testing.assert_allclose(state.model["bias"], START - RATE * (first + second), atol=1e-10, rtol=0)
    once = START - RATE * (first + 0.3 * START)
    np.testing.assert_allclose(
        state.model["weight"][0], once - RATE * (second + 0.3 * once), atol=1e-10, rtol=0
    )


ENDING = sorted(set(SCHEDULES) - {"inverse-time"})


@pytest.mark.parametrize("name", ENDING)
def test_schedules_start_end_and_fall(name):
    rates = np.array([SCHEDULES[name](0.5, Decay(40, 0.02))(step) for step in range(41)], float)
    assert rates[0] == pytest.approx(0.5)
    assert rates[-1] == pytest.approx(0.5 if name == "constant" else 0.01)
    falls = np.diff(rates)
    assert (falls == 0).all() if name == "constant" else (falls < 0).all()


@pytest.mark.parametrize("name", sorted(set(ENDING) - {"inverse"}))
def test_schedules_stay_at_their_end(name):
    rate = SCHEDULES[name](0.5, Decay(40, 0.02))
    assert float(rate(90)) == pytest.approx(float(rate(40)))


def test_middles_tell_the_schedules_apart():
    middle = {name: float(SCHEDULES[name](1.0, Decay(40, 0.04))(20)) for name in ENDING}
    expected = {"constant": 1, "cosine": 0.52, "linear": 0.52, "exponential": 0.2, "inverse": 1 / 13}
    assert middle == pytest.approx(expected)
    quarter = {name: float(SCHEDULES[name](1.0, Decay(40, 0.04))(10)) for name in ("cosine", "linear")}
    assert quarter == pytest.approx({"cosine": 0.04 + 0.96 * (1 + np.sqrt(0.5)) / 2, "linear": 0.76})


def test_inverse_time_is_held_and_then_falls_by_the_steps_since():
    """Whatever the length of the training is."""
    for steps in (40, 4000):
        rate = SCHEDULES["inverse-time"](0.5, Decay(steps, 0.02, hold=30, time=8.0))
        rates = [float(rate(step)) for step in (0, 30, 31, 38, 54, 230)]
        assert rates == pytest.approx([0.5, 0.5, 0.5 * 8 / 9, 0.25, 0.125, 0.5 / 26])


def test_inverse_time_has_its_settings():
    chosen = {"optimizer.schedule": "inverse-time", "learning_rate": 1.0}
    given = {"optimizer.hold_steps": 10, "optimizer.decay_time": 5.0}
    for extra, steps in ((given, (10, 15, 25)), ({}, (200, 220, 260))):
        rate = methods.rate_of(config.resolve(chosen | extra), Pace(1000))
        assert [float(rate(step)) for step in steps] == pytest.approx([1, 1 / 2, 1 / 4])


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_rate_warms_up_beside_its_schedule(schedule):
    """A quarter, a half, three quarters of what the schedule says, then all of it."""
    chosen = {"optimizer.schedule": schedule, "learning_rate": 0.4}
    plain = methods.rate_of(config.resolve(chosen), Pace(20))
    warm = methods.rate_of(config.resolve(chosen | {"optimizer.warmup": 4}), Pace(20))
    shares = [float(warm(jnp.asarray(step))) / float(plain(step)) for step in range(6)]
    assert shares == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])


def test_a_schedule_runs_over_the_training_or_as_long_as_told():
    """A cut is of the whole schedule."""

    def at_ten(steps, divergences=0, **extra):
        names = {"optimizer.schedule": "linear", "optimizer.final_fraction": 0.5, "learning_rate": 1.0}
        settings, progress = config.resolve(names | extra), TrainingProgress(divergences=divergences)
        session = SimpleNamespace(settings=settings, total=steps, progress=progress)
        return float(methods.rate_of(settings, Session.pace.fget(session))(10))

    assert at_ten(10) == pytest.approx(0.5)
    assert at_ten(20) == pytest.approx(0.75)
    assert at_ten(20, **{"training.schedule_steps": 10}) == pytest.approx(0.5)
    assert at_ten(20, divergences=2) == pytest.approx(0.75 / 16)


def faulty(value, slope):
    """An objective whose loss and gradient are what they are told to be."""

    def estimate(key, model, batch):
        del key, batch
        gradient = jax.tree.map(lambda leaf: jnp.full_like(leaf, slope), model)
        return Estimate(jnp.asarray(value), gradient, (), {})

    return stateless(estimate)


def counting(objective):
    """The same objective, carrying the number of estimates made."""

    def estimate(key, carry, model, batch):
        return objective.estimate(key, (), model, batch)[0], carry + 1

    return Objective(lambda key, model, batch: jnp.zeros(()), estimate)


def one_step(value, slope, optimizer=None):
    algorithm = descent(counting(faulty(value, slope)), steepest(), optimizer or optax.adam(0.1))
    batch = jnp.zeros((4, 2))
    with jax.numpy_dtype_promotion("standard"):  # optax relies on it
        before = jax.jit(algorithm.init)(jax.random.key(0), machine(), batch)
        return before, *jax.jit(algorithm.step)(jax.random.key(1), before, batch)


def same(left, right):
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return [bool((np.asarray(a) == np.asarray(b)).all()) for a, b in pairs]


@pytest.mark.parametrize(
    ("value", "slope"),
    [
        (np.nan, 1.0),
        (1.0, np.inf),
        (1.0, 1e200),
        *(pytest.param(*c, marks=pytest.mark.slow) for c in ((np.inf, 1.0), (-np.inf, 1.0), (1.0, np.nan))),
    ],
)
def test_a_step_that_is_not_finite_is_refused(value, slope):
    """1e200: the step itself is finite for plain descent, but its length is not."""
    before, after, info = one_step(value, slope, optax.sgd(0.1, momentum=0.9))
    assert int(info.result) == NON_FINITE
    assert all(same(before._replace(steps=0), after._replace(steps=0)))
    assert int(after.steps) == 1
    assert "not finite" in RESULTS[NON_FINITE]


def test_a_finite_step_is_taken():
    before, after, info = one_step(1.0, 1.0)
    assert int(info.result) == TAKEN
    assert not any(same(before.model, after.model))
    assert (int(after.steps), float(after.objective)) == (1, 1.0)


def test_plain_descent_moves_against_the_gradient():
    before, after, _ = one_step(1.0, 2.0, optax.sgd(0.25))
    for old, new in zip(jax.tree.leaves(before.model), jax.tree.leaves(after.model), strict=True):
        np.testing.assert_allclose(new, np.asarray(old) - 0.5, atol=1e-14)
