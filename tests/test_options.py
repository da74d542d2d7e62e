"""What goes beyond the plain step: adaptive damping, sleep-well, averages, bidirectional machines."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import oracles
from cases import CODINGS, machine
from natgrad import config, tree
from natgrad.config.names import readers
from natgrad.core import NON_FINITE, TAKEN, UNSOLVED, Algorithm, Info, Pace, State
from natgrad.layers import bernoulli
from natgrad.models.helmholtz import fisher, kind, methods
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz import normalizer as evaluation
from natgrad.models.helmholtz.phases import bidirectional, half_exponent, reweighted, sleep_only, wake_sleep
from natgrad.models.registry import Shape
from natgrad.solvers.choice import always
from natgrad.solvers.direct import direct
from natgrad.solvers.units import per_layer
from natgrad.updates.damping import constant, levenberg_marquardt
from natgrad.updates.descent import descent
from natgrad.updates.first_order import steepest
from natgrad.updates.in_turn import Turn, in_turn
from natgrad.updates.lengths import learning_rate
from natgrad.updates.natural import Options, natural

pytestmark = pytest.mark.timeout(200)


def batch_of(model, rows=6):
    on = jax.random.bernoulli(jax.random.key(3), 0.5, (model.sizes[0], rows))
    return model.coding.value(on, jnp.float64)


def vector(model):
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(model)])


PARTS = {
    "generation": (fisher.GENERATION, fisher.generation_from_dreams()),
    "recognition": (fisher.RECOGNITION, fisher.recognition_from_dreams()),
}


def directions_taken(name, rate, damping, steps=1):
    """The steps of a network's natural direction at that rate, whose promises are compared with the loss."""
    part, metric = PARTS[name]
    model, objective = machine(), reweighted(30)
    estimate, _ = jax.jit(objective.estimate)(jax.random.key(0), (), model, batch_of(model))
    own = estimate._replace(gradient=part.get(estimate.gradient))
    options = Options(damping=damping, length=learning_rate(rate), gain=True)
    solver = per_layer(always(direct()))
    method = natural(metric, solver, options, revalue=objective.revalue, part=part)
    carry, apply = jax.jit(method.init)(jax.random.key(0), model, own), jax.jit(method.apply)
    for _ in range(steps):
        found = apply(jax.random.key(0), carry, model, own)
        carry = found.carry
        yield found


@pytest.mark.parametrize("name", ["generation", pytest.param("recognition", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_reduction_ratio_tends_to_one_for_small_steps(name):
    """Of either network, where only that network moves."""
    gaps = []
    for rate in (1e-2, 1e-3):
        (found,) = directions_taken(name, rate, levenberg_marquardt(0.1))
        gaps.append(abs(float(found.evidence.evidence.ratio) - 1))
    assert gaps[1] < 1e-2
    assert gaps[0] / gaps[1] == pytest.approx(10, rel=0.3)  # first order in the rate


@pytest.mark.parametrize(
    ("name", "rate", "expected"),
    [
        ("generation", 50.0, 1.1),
        ("recognition", 1e-4, 1 / 1.1),
        pytest.param("generation", 1e-4, 1 / 1.1, marks=pytest.mark.slow),
        pytest.param("recognition", 50.0, 1.1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.few(1)
@pytest.mark.slow
def test_damping_adapts_to_how_steps_do(name, rate, expected):
    """A tiny step does what was promised: less damping. A huge one does not: more."""
    damping = levenberg_marquardt(constant(0.1), factor=1.1, every=2)
    found = list(directions_taken(name, rate, damping, steps=3))
    levels = [float(step.carry.level) / 0.1 for step in found]
    np.testing.assert_allclose(
        levels, [expected, expected, expected**2], rtol=1e-6
    )  # looked at in steps 0 and 2
    np.testing.assert_allclose(found[-1].evidence.factor.damping, 0.1 * expected, rtol=1e-6)
    assert np.isnan(float(found[1].evidence.evidence.ratio))


@pytest.mark.slow
def test_the_damping_of_a_config_adapts_every_twenty_steps_by_a_tenth():
    """Each network's own, from what the schedule says, between a thousandth and a thousand times of it."""
    chosen = {"metric.adaptive": True, "metric.final_damping": 0.03, "damping": 0.3, "solver": "diagonal"}
    settings = config.resolve(
        {"method": "nrws", "layers": (3, 2), "samples": 4, "learning_rate": 1e-6} | chosen
    )
    algorithm, model = methods.algorithm(settings, 4, Pace(100)), machine()
    batch = batch_of(model)
    state, step = jax.jit(algorithm.init)(jax.random.key(1), model, batch), jax.jit(algorithm.step)
    for turn in range(22):
        state, info = step(jax.random.key(turn), state, batch)
    for name in PARTS:
        assert float(state.direction[name].level) == pytest.approx(1.1**-2)
        found = float(info.evidence[name].factor.damping)
        assert found == pytest.approx(1.1**-2 * 0.3 * 0.1 ** (21 / 100), rel=1e-5)


@pytest.mark.slow
def test_sleep_only_is_the_sleep_lesson():
    """The same dreams give wake-sleep's recognition gradient, and nothing to generation."""
    model = machine()
    batch = batch_of(model)
    key = jax.random.key(5)
    asleep, _ = jax.jit(sleep_only(4, 1.0).estimate)(key, (), model, batch)
    both, _ = jax.jit(wake_sleep(4).estimate)(key, (), model, batch)
    dreams = jax.jit(helmholtz.dream, static_argnums=(2, 3))(key, model, 6, 4)
    np.testing.assert_array_equal(vector(asleep.samples.dreams.values), vector(dreams.values))
    assert np.abs(vector((asleep.gradient.prior, asleep.gradient.generation))).max() == 0
    expected = 0.0
    m = oracles.numpy_model(model)
    for s in range(4):
        for r in range(6):
            layers = [model.coding.on(np.asarray(value)[:, r, s]) for value in dreams.values]
            expected = expected - oracles.flatten(None, [], oracles.recognition_score(m, layers)) / 24
    np.testing.assert_allclose(vector(asleep.gradient.recognition), expected, atol=1e-12)
    assert vector(both.gradient.recognition).shape == expected.shape


def counting(amount: float, refused: int = -1) -> Algorithm:
    """A method that adds a number to the model, and says that one of its steps was not taken."""

    def init(key, model, batch):
        return State(model, (), (), (), jnp.zeros((), jnp.int32))

    def step(key, state, batch):
        model = jax.tree.map(lambda leaf: leaf + amount, state.model)
        zero, result = jnp.zeros(()), jnp.where(state.steps == refused, UNSOLVED, TAKEN)
        return state._replace(model=model, steps=state.steps + 1), Info(
            zero, result, {}, model, model, model, zero, ()
        )

    return Algorithm(init, step, lambda info: {})


def test_extra_steps_are_taken_first():
    both = in_turn(counting(1.0), Turn(counting(10.0), 3))
    state = both.init(jax.random.key(0), jnp.zeros(2), None)
    for turn in range(2):
        state, _ = jax.jit(both.step)(jax.random.key(turn), state, jnp.zeros(1))
    np.testing.assert_allclose(state.model, 2 * (3 * 10 + 1))
    assert int(state.steps) == 2
    assert int(state.objective[1][0].steps) == 6


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_a_step_of_any_turn_that_was_refused_is_told(refused):
    both = in_turn(counting(1.0), Turn(counting(10.0, refused), 3))
    state = both.init(jax.random.key(0), jnp.zeros(2), None)
    state, first = jax.jit(both.step)(jax.random.key(0), state, jnp.zeros(1))
    _, second = jax.jit(both.step)(jax.random.key(0), state, jnp.zeros(1))
    assert (int(first.result), int(second.result)) == (UNSOLVED, TAKEN)


def test_several_methods_take_turns_in_order():
    """Each with a state of its own; the main one comes last and is told."""

    def doubled(key, state, batch):
        _, info = counting(0.0).step(key, state, batch)
        return state._replace(model=2 * state.model, steps=state.steps + 1), info

    double = counting(0.0)._replace(step=doubled)
    three = in_turn(counting(1.0), Turn(counting(10.0), 2), Turn(double))
    state = three.init(jax.random.key(0), jnp.zeros(2), None)
    state, info = three.step(jax.random.key(0), state, jnp.zeros(1))
    np.testing.assert_allclose(state.model, 2 * (2 * 10) + 1)
    np.testing.assert_allclose(info.direction, state.model)
    assert [int(other.steps) for other in state.objective[1]] == [2, 1]


@pytest.mark.slow
def test_average_of_models():
    model = machine()
    batch = batch_of(model)
    method = descent(reweighted(3), steepest(), optax.sgd(0.1), average=0.9)
    state, step = jax.jit(method.init)(jax.random.key(0), model, batch), jax.jit(method.step)
    expected, blend = state.model, jax.jit(tree.blend)
    for turn in range(3):
        state, _ = step(jax.random.key(turn), state, batch)
        expected = blend((1 + turn) / (10 + turn), expected, state.model)
    np.testing.assert_allclose(vector(state.average), vector(expected), rtol=1e-12)
    late, _ = step(jax.random.key(9), state._replace(steps=jnp.asarray(500, jnp.int32)), batch)
    expected = tree.blend(0.9, expected, late.model)
    np.testing.assert_allclose(vector(late.average), vector(expected), rtol=1e-12)


def test_half_exponent_weights():
    model = machine()
    drawn = jax.jit(helmholtz.wake, static_argnums=3)(jax.random.key(1), model, batch_of(model), 5)
    log_weights = np.asarray(jax.jit(helmholtz.log_weights)(model, drawn))
    root = np.sqrt(np.exp(log_weights))
    np.testing.assert_allclose(
        half_exponent(jnp.asarray(log_weights)), root / root.sum(axis=1, keepdims=True), atol=1e-12
    )


def star(m):
    """(sum_h sqrt(p(x, h) q(h | x)))^2 of every x, by enumeration."""
    found = []
    for x in oracles.all_states(m["sizes"][0]):
        terms = [
            np.exp(0.5 * (oracles.log_joint(m, [x, *h]) + oracles.log_recognition(m, [x, *h])))
            for h in oracles.hidden_states(m)
        ]
        found.append(np.sum(terms) ** 2)
    return np.array(found)


@pytest.mark.parametrize("coding", ["signed", pytest.param("binary", marks=pytest.mark.slow)])
def test_bidirectional_gradient_is_that_of_the_star_model(coding):
    """With many samples, the gradient of -log of the unnormalized p*(x) in both networks."""
    model = machine((3, 2), CODINGS[coding], spread=0.3)
    batch = batch_of(model, rows=1)

    def loss(model):
        states = jnp.stack(
            [jnp.asarray(h[0]) for h in oracles.hidden_states(oracles.numpy_model(model0))], axis=1
        )
        values = (batch[:, None, :], model.coding.value(states, jnp.float64)[:, :, None])
        drawn = everything(model, values)
        half = 0.5 * (helmholtz.log_joint(model, drawn) + helmholtz.log_recognition(model, drawn))
        return -2 * jax.nn.logsumexp(half)

    model0 = model
    exact = jax.jit(jax.grad(loss))(model)
    found, _ = jax.jit(bidirectional(400_000, baseline=False).estimate)(jax.random.key(0), (), model, batch)
    np.testing.assert_allclose(vector(found.gradient), vector(exact), atol=0.01)


def everything(model, values):
    generation = (bernoulli.logits(model.generation[0], values[1]), model.prior[:, None, None])
    return helmholtz.Pass(values, generation, (bernoulli.logits(model.recognition[0], values[0]),))


@pytest.mark.parametrize("coding", ["binary", pytest.param("signed", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_star_likelihood_and_its_normalizer(coding):
    model = machine((3, 2, 2), CODINGS[coding], spread=0.3)
    exact = star(oracles.numpy_model(model))
    z2 = evaluation.normalizer(jax.random.key(0), model, draws=40_000, inner=5)
    assert z2.log_z2 < 0
    assert abs(z2.log_z2 - np.log(exact.sum())) < 5 * z2.se
    assert z2.se < 0.02
    rows = jnp.asarray(np.array(oracles.all_states(3)).T)
    found = evaluation.log_unnormalized(
        jax.random.key(1), model, model.coding.value(rows, jnp.float64), samples=50_000
    )
    np.testing.assert_allclose(found.rows, np.log(exact), atol=0.02)


def fresh(settings):
    return jax.jit(lambda key: kind.fresh(key, settings, Shape(visible=4)))(jax.random.key(0))


FEW = ("ws", "nrws", "nbihm")
STEPPING = [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in methods.METHODS]


@pytest.mark.parametrize("method", STEPPING)
@pytest.mark.few(2)
def test_every_method_takes_a_finite_step(method):
    """From the config to a step, with the options that compose."""
    damped = {"damping": 0.3} if ("helmholtz", method) in readers("metric.damping") else {}
    settings = config.resolve({"method": method, "layers": (3, 2), "samples": 4} | damped)
    algorithm = methods.algorithm(settings, settings.objective.samples, Pace(100))
    model = fresh(settings)
    batch = batch_of(model, rows=5)
    state = jax.jit(algorithm.init)(jax.random.key(1), model, batch)
    after, info = jax.jit(algorithm.step)(jax.random.key(2), state, batch)
    assert int(info.result) == 0
    assert 0 < np.abs(vector(after.model) - vector(model)).max() < 10


@pytest.mark.slow
def test_diagonal_method_is_the_natural_one_with_the_diagonal_solver():
    steps = []
    for settings in ({"method": "dnrws"}, {"method": "nrws", "solver": "diagonal"}):
        resolved = config.resolve(settings | {"layers": (3, 2), "samples": 4, "learning_rate": 0.1})
        algorithm = methods.algorithm(resolved, resolved.objective.samples, Pace(10))
        model = fresh(resolved)
        batch = batch_of(model)
        state = jax.jit(algorithm.init)(jax.random.key(1), model, batch)
        steps.append(jax.jit(algorithm.step)(jax.random.key(2), state, batch)[0])
    np.testing.assert_array_equal(vector(steps[0].model), vector(steps[1].model))


@pytest.mark.parametrize("method", ["nrws", pytest.param("rws", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_sleep_well_moves_recognition_more(method):
    moved = []
    for sleeps in (1, 4):
        settings = config.resolve(
            {
                "method": method,
                "layers": (3, 2),
                "samples": 4,
                "objective.sleeps": sleeps,
                "learning_rate": 0.05,
            }
        )
        algorithm = methods.algorithm(settings, settings.objective.samples, Pace(10))
        model = fresh(settings)
        batch = batch_of(model)
        state = jax.jit(algorithm.init)(jax.random.key(1), model, batch)
        after, _ = jax.jit(algorithm.step)(jax.random.key(2), state, batch)
        moved.append(np.linalg.norm(vector(after.model.recognition) - vector(model.recognition)))
    assert moved[1] > 2 * moved[0]


def test_sleep_steps_are_plain_where_recognition_has_no_metric():
    moved = []
    for method in ({"method": "nrws", "metric.recognition": "none"}, {"method": "rws"}):
        settings = {"layers": (3, 2), "samples": 4, "objective.sleeps": 3, "learning_rate": 0.05}
        resolved = config.resolve(settings | method)
        algorithm = methods.algorithm(resolved, resolved.objective.samples, Pace(10))
        model = fresh(resolved)
        batch = batch_of(model)
        state = jax.jit(algorithm.init)(jax.random.key(1), model, batch)
        after, _ = jax.jit(algorithm.step)(jax.random.key(2), state, batch)
        moved.append(vector(after.model.recognition))
    np.testing.assert_allclose(moved[0], moved[1], rtol=1e-12)


POISONS = (np.nan, np.inf, 1e20, 1e160)


@pytest.mark.parametrize(
    ("method", "refresh"),
    [
        ("rws", 1),
        ("nrws", 1),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("ws", 1), ("bihm", 1), ("dnrws", 1))),
        pytest.param("nrws", 10, marks=pytest.mark.slow),
    ],
)
@pytest.mark.few(1)
def test_biases_show_that_a_step_is_not_finite(method, refresh):
    """Whatever is wrong with a model, and wherever: no weight's step is bad without one of a bias."""
    model = machine()
    kept = {"refresh": refresh} if refresh > 1 else {}
    settings = config.resolve({"method": method, "layers": (4, 3), "samples": 5} | kept)
    chosen, batch = methods.algorithm(settings, settings.objective.samples, Pace(100)), batch_of(model)
    step = jax.jit(chosen.step)
    state = jax.jit(chosen.init)(jax.random.key(0), model, batch)
    leaves, structure = jax.tree.flatten(model)
    bad = 0
    for place, poison in itertools.product(range(len(leaves)), POISONS):
        changed = [np.array(leaf) for leaf in leaves]
        changed[place].flat[0] = poison
        poisoned = state._replace(model=jax.tree.unflatten(structure, changed))
        after, info = step(jax.random.key(1), poisoned, batch)
        sound = bool(np.isfinite(vector(info.shaped)).all())
        bad += not sound
        assert sound or not np.isfinite(vector(helmholtz.biases(info.shaped))).all()
        assert sound or int(info.result) == NON_FINITE
        if not sound:
            np.testing.assert_array_equal(vector(after.model), vector(poisoned.model))
    assert bad >= len(leaves)
