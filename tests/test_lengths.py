"""How far steps go, and which are refused: KL balls, reduction ratios, failed solves."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cases import machine
from natgrad import config, tree
from natgrad.core import NON_FINITE, RESULTS, TAKEN, UNSOLVED, Estimate, Metric, Pace, Solver, stateless
from natgrad.metrics.blocks import UnitBlocks
from natgrad.metrics.layered import LayeredFisher
from natgrad.models.helmholtz import methods
from natgrad.solvers.choice import always
from natgrad.solvers.direct import direct
from natgrad.solvers.results import CONVERGED, FAILED
from natgrad.solvers.units import per_layer
from natgrad.updates.damping import constant, levenberg_marquardt
from natgrad.updates.descent import descent
from natgrad.updates.lengths import divergence_ball, learning_rate
from natgrad.updates.natural import Options, natural
from test_natural import CURVED, SOURCES, drawn, natural_of, network_lengths, vector

RADIUS = 1e-3
LONG, SHORT = 1e3, 1e-4  # rates with which a ball of that radius always binds, and never


def few_of(few, *lists):
    """All combinations; but for a few, they are slow tests."""
    rest = (case for case in product(*lists) if case not in few)
    return [*few, *(pytest.param(*case, marks=pytest.mark.slow) for case in rest)]


scaled, subtracted = jax.jit(tree.scale), jax.jit(tree.subtract)


def divergences(step):
    """The KL of a step of both networks in nats, (1/2) u^T F u, by products with the operator."""
    return np.asarray(network_lengths(step.evidence, scaled(step.length, step.vector))) / 2


def turned(method, model):
    """Steps with the same draws, whose gradient changes its sign after two: an average lags behind."""
    estimate = drawn(model)
    carry, steps = jax.jit(method.init)(jax.random.key(0), model, estimate), []
    apply = jax.jit(method.apply)
    for sign in (1.0, 1.0, -1.0, -0.5, -1.0, 1.0):
        given = estimate._replace(gradient=scaled(sign, estimate.gradient))
        steps.append(apply(jax.random.key(0), carry, model, given))
        carry = method.keep(jnp.asarray(True), carry, steps[-1].carry)
    return steps


@pytest.mark.parametrize(
    ("decay", "relative", "choose"),
    few_of([(0.9, True, "direct"), (0.9, False, "cg")], (0.0, 0.9), (False, True), CURVED),
)
@pytest.mark.few(1)
def test_a_step_is_as_long_as_the_ball_where_it_binds(choose, decay, relative):
    """Measured by the present metric, whatever is left of earlier gradients, and by whatever solver."""
    ball = divergence_ball(RADIUS, longest=learning_rate(LONG))
    options = {"length": ball, "gradient_decay": decay, "relative": relative}
    for step in turned(natural_of(CURVED[choose], constant(0.1), **options), machine()):
        np.testing.assert_allclose(divergences(step), RADIUS, rtol=1e-8)
        shown = [float(solved.evidence.divergence) for solved in step.evidence.values()]
        np.testing.assert_allclose(shown, RADIUS, rtol=1e-8)


def test_a_step_is_never_longer_than_the_ball_or_the_rate():
    ball = divergence_ball(RADIUS, longest=learning_rate(SHORT))
    options = {"length": ball, "gradient_decay": 0.9}
    for step in turned(natural_of(CURVED["direct"], constant(0.1), **options), machine()):
        assert (divergences(step) <= RADIUS).all()
        np.testing.assert_array_equal(vector(step.length), SHORT)


METHODS = {
    "dnrws": {"method": "dnrws"},
    "diagonal": {"method": "nrws", "solver": "diagonal"},
    "shared": {"method": "nrws", "solver": "shared"},
    "cg": {"method": "nrws", "solver": "cg", "metric.iterations": 1},
    "nws, kept": {"method": "nws", "refresh": 3},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decay", "method"),
    few_of([(0.8, "dnrws"), (0.0, "nws, kept")], (0.0, 0.8), METHODS),
)
def test_the_radius_of_a_config_is_the_kl_of_its_steps(method, decay):
    """Of either network, by the metric in use, at every step of a training."""
    chosen = {"metric.kl_radius": RADIUS, "metric.gradient_decay": decay, "learning_rate": LONG}
    settings = config.resolve({"layers": (3, 2), "samples": 4, "damping": 0.1} | METHODS[method] | chosen)
    algorithm = methods.algorithm(settings, 4, Pace(100))
    model = machine()
    batch = model.coding.value(jax.random.bernoulli(jax.random.key(3), 0.5, (4, 6)), jnp.float64)
    state, step = jax.jit(algorithm.init)(jax.random.key(1), model, batch), jax.jit(algorithm.step)
    for turn in range(4):
        before = state.model
        state, info = step(jax.random.key(turn), state, batch)
        moved = subtracted(state.model, before)
        assert int(info.result) == TAKEN
        np.testing.assert_allclose(np.divide(network_lengths(info.evidence, moved), 2), RADIUS, rtol=1e-7)
    assert float(jax.jit(algorithm.describe)(info)["step_kl"]) == pytest.approx(2 * RADIUS, rel=1e-7)


ROWS = np.random.default_rng(0)
BLOCKS = UnitBlocks(
    jnp.asarray(ROWS.choice([-1.0, 1.0], (5, 8))), jnp.asarray(ROWS.uniform(0.1, 0.25, (3, 8)))
)
FISHER = LayeredFisher({"layer": BLOCKS, "alone": jnp.asarray([0.5, 2.0])})
START = jax.tree.map(lambda leaf: jnp.asarray(ROWS.normal(size=leaf.shape)), FISHER.like)
METRIC = Metric(lambda key, model, drawn: (), lambda key, carry, model, drawn: (FISHER, carry))


def bowl():
    """The quadratic (1/2) x^T F x - b^T x, whose b is drawn at every step: its Hessian is the metric."""

    def value(model, pull):
        return 0.5 * tree.vdot(model, FISHER.mv(model)) - tree.vdot(pull, model)

    def estimate(key, model, batch):
        del batch
        pull = jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape, leaf.dtype), model)
        return Estimate(value(model, pull), tree.subtract(FISHER.mv(model), pull), pull, {})

    return stateless(estimate, value)


def trained(method, turns):
    """The results of some steps on the quadratic, each with the state before it and after it."""
    batch = jnp.zeros(())
    state, step = jax.jit(method.init)(jax.random.key(0), START, batch), jax.jit(method.step)
    for turn in range(turns):
        before = state
        state, info = step(jax.random.key(turn), before, batch)
        yield before, state, info


@pytest.mark.parametrize(
    ("decay", "relative", "gain"),
    few_of([(0.9, True, True), (0.0, False, False)], (0.0, 0.9), (False, True), (False, True)),
)
@pytest.mark.few(1)
def test_the_reduction_ratio_is_one_on_a_quadratic(gain, relative, decay):
    """The promise is that of the true gradient, also along an average of earlier ones."""
    options = Options(
        damping=levenberg_marquardt(8.0),
        length=learning_rate(0.3),
        gain=gain,
        relative=relative,
        gradient_decay=decay,
    )
    objective = bowl()
    direction = natural(METRIC, per_layer(always(direct())), options, revalue=objective.revalue)
    levels = []
    for _, state, info in trained(descent(objective, direction, optax.identity()), 4):
        assert int(info.result) == TAKEN
        assert float(info.evidence.evidence.ratio) == pytest.approx(1, abs=1e-9)
        levels.append(float(state.direction.level))
    np.testing.assert_allclose(levels, 8 / 1.5 ** np.arange(1, 5))


def failing(below, value):
    """The direct solver, which fails where the damping is too small: it returns some multiple of g."""
    true = per_layer(always(direct()))

    def solve(factor, gradient, guess):
        found, bad = true.solve(factor, gradient, guess), factor.damping < below
        return found._replace(
            value=tree.select(bad, tree.scale(value, gradient), found.value),
            result=jnp.where(bad, FAILED, CONVERGED),
        )

    return Solver(true.prepare, solve)


@pytest.mark.parametrize(
    ("value", "result", "refresh"),
    [
        (-1.0, UNSOLVED, 1),
        (np.nan, NON_FINITE, 3),
        pytest.param(-1.0, UNSOLVED, 3, marks=pytest.mark.slow),
        pytest.param(np.nan, NON_FINITE, 1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.few(1)
def test_a_failed_solve_refuses_the_step_and_the_damping_rises(value, result, refresh):
    """Until the solve succeeds: 1, 1.5 and 2.25 are too little, 3.375 is enough; a factor is made again."""
    objective = bowl()
    options = Options(
        damping=levenberg_marquardt(1.0), length=learning_rate(0.3), gradient_decay=0.5, refresh=refresh
    )
    direction = natural(METRIC, failing(3.0, value), options, revalue=objective.revalue)
    method = descent(objective, direction, optax.trace(0.9))
    results, dampings = [], []
    for before, after, info in trained(method, 4):
        results.append(int(info.result))
        dampings.append(float(info.evidence.factor.damping))
        if results[-1] != TAKEN:
            for one, two in (
                (before.model, after.model),
                (before.optimizer, after.optimizer),
                (before.direction.gradient, after.direction.gradient),
            ):
                np.testing.assert_array_equal(vector(one), vector(two))
        assert int(after.steps) == int(before.steps) + 1
    assert results == [result] * 3 + [TAKEN]
    np.testing.assert_allclose(dampings, 1.5 ** np.arange(4))
    assert "the solve failed" in RESULTS[UNSOLVED]


@pytest.mark.slow
def test_a_failed_part_refuses_the_whole_step():
    """Generation's solve is good, recognition's is not: neither network moves."""
    from natgrad.models.helmholtz.phases import reweighted
    from natgrad.updates.parts import Block, blockwise

    (low, below), (high, above) = SOURCES.values()
    options = Options(damping=constant(0.1), gain=True)
    whole = blockwise(
        {
            "generation": Block(low, natural(below, per_layer(always(direct())), options, part=low)),
            "recognition": Block(high, natural(above, failing(1.0, 1.0), options, part=high)),
        }
    )
    method, model = descent(reweighted(4), whole, optax.sgd(0.1)), machine()
    batch = model.coding.value(jax.random.bernoulli(jax.random.key(3), 0.5, (4, 6)), jnp.float64)
    state = jax.jit(method.init)(jax.random.key(0), model, batch)
    after, info = jax.jit(method.step)(jax.random.key(0), state, batch)
    assert int(info.result) == UNSOLVED
    np.testing.assert_array_equal(vector(after.model), vector(model))
