"""Two networks with rates, dampings and refreshes of their own; LAPACK calls one after the other."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Literal

from cases import machine
from natgrad import config
from natgrad.core import Pace
from natgrad.models.helmholtz import fisher, methods
from natgrad.models.helmholtz.spec import METRICS
from natgrad.solvers.choice import always
from natgrad.solvers.direct import direct
from natgrad.solvers.dual import dual
from natgrad.solvers.shared import shared
from natgrad.updates.damping import constant
from natgrad.updates.first_order import steepest
from natgrad.updates.lengths import paced
from natgrad.updates.parts import WHOLE, Block, Part, blockwise
from test_natural import direction_of, drawn, natural_of, vector


def setting(**changes):
    """A tiny machine's config; dots of names are two underscores. Natural methods have a damping."""
    damped = {"damping": 0.3} if changes["method"] in METRICS else {}
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return config.resolve({"layers": (3, 2), "samples": 4} | damped | named)


def batch_of(model):
    return model.coding.value(jax.random.bernoulli(jax.random.key(3), 0.5, (4, 6)), jnp.float64)


def infos(settings, turns=1):
    """What is told of the first steps of a config's method."""
    algorithm, model = methods.algorithm(settings, 4, Pace(100)), machine()
    batch = batch_of(model)
    first = lambda model: algorithm.init(jax.random.key(1), model, batch)  # noqa: E731
    with jax.numpy_dtype_promotion("standard"):
        if turns == 1:  # one program instead of two
            yield jax.jit(lambda model: algorithm.step(jax.random.key(0), first(model), batch))(model)
            return
        state, step = jax.jit(first)(model), jax.jit(algorithm.step)
        for turn in range(turns):
            state, info = step(jax.random.key(turn), state, batch)
            yield state, info


def moved(settings, turns=3):
    """How far every network has moved after some steps."""
    *_, (state, _) = infos(settings, turns)
    return distances(state)


def distances(state):
    gap = jax.tree.map(lambda now, then: np.asarray(now) - np.asarray(then), state.model, machine())
    return vector(fisher.GENERATION.get(gap)), vector(fisher.RECOGNITION.get(gap))


@pytest.mark.parametrize(
    "method", ["nrws", *(pytest.param(m, marks=pytest.mark.slow) for m in ("rws", "ws"))]
)
@pytest.mark.slow
def test_the_steps_of_adam_are_in_the_ratio_of_the_rates(method):
    """The optimizer comes before the rates: no normalization can cancel them."""
    rates = {"generation__rate": 0.003, "recognition__rate": 0.012}
    ((_, info),) = infos(setting(method=method, optimizer="adam", **rates))
    below, above = (part.get(info.update) for part in (fisher.GENERATION, fisher.RECOGNITION))
    np.testing.assert_allclose(np.abs(vector(below)), 0.003, rtol=1e-4)  # Adam's first step is its rate
    np.testing.assert_allclose(np.abs(vector(above)), 0.012, rtol=1e-4)


@pytest.mark.parametrize(
    ("method", "optimizer"),
    [
        ("nrws", "adam"),
        *(
            pytest.param(*c, marks=pytest.mark.slow)
            for c in (("rws", "sgd"), ("rws", "adam"), ("nrws", "sgd"))
        ),
    ],
)
@pytest.mark.slow
def test_a_rate_of_its_own_is_that_of_the_network_alone(method, optimizer):
    """The first step of each network is that of a machine in which both have its rate."""
    own = setting(method=method, optimizer=optimizer, generation__rate=0.01, recognition__rate=0.05)
    found = moved(own, 1)
    for number, rate in enumerate((0.01, 0.05)):
        alike = setting(method=method, optimizer=optimizer, learning_rate=rate)
        np.testing.assert_allclose(found[number], moved(alike, 1)[number], rtol=1e-12, atol=1e-15)


@pytest.mark.slow
def test_a_network_without_a_rate_has_that_of_the_optimizer():
    own = setting(method="rws", recognition__rate=0.05, learning_rate=0.01)
    alike = setting(method="rws", recognition__rate=0.05, generation__rate=0.01, learning_rate=7.0)
    for one, two in zip(moved(own), moved(alike), strict=True):
        np.testing.assert_array_equal(one, two)


BALL, ADAPTIVE = {"metric__kl_radius": 1e9}, {"metric__adaptive": True}


@pytest.mark.parametrize(
    ("generation", "length"),
    [
        ("dreams", BALL),
        ("none", ADAPTIVE),
        pytest.param("dreams", ADAPTIVE, marks=pytest.mark.slow),
        pytest.param("none", BALL, marks=pytest.mark.slow),
    ],
)
@pytest.mark.few(1)
def test_rates_of_their_own_bound_steps_that_decide_their_lengths(length, generation):
    """Also for a network without a metric, which goes by its rate alone."""
    own = {"generation__rate": 0.01, "recognition__rate": 0.05, "metric__generation": generation}
    ((_, info),) = infos(setting(method="nrws", **own, **length))
    np.testing.assert_array_equal(vector(fisher.GENERATION.get(info.scale)), -0.01)
    np.testing.assert_array_equal(vector(fisher.RECOGNITION.get(info.scale)), -0.05)


def test_a_damping_of_its_own_is_used():
    given = setting(method="nrws", solver="direct", generation__damping=0.7)
    ((state, info),) = infos(given)
    assert float(info.evidence["generation"].factor.damping) == pytest.approx(0.7, rel=1e-6)
    assert float(info.evidence["recognition"].factor.damping) == pytest.approx(0.3, rel=1e-6)
    found = distances(state)
    for number, damping in enumerate((0.7, 0.3)):
        alike = moved(setting(method="nrws", solver="direct", damping=damping), 1)
        np.testing.assert_allclose(found[number], alike[number], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    ("kept", "other"),
    [
        ("generation", "recognition"),
        pytest.param("recognition", "generation", marks=pytest.mark.slow),
    ],
)
def test_a_refresh_of_its_own_is_used(kept, other):
    """One network keeps its metric for three steps, the other has a new one at every step."""
    given = setting(method="nrws", solver="direct", **{f"{kept}__refresh": 3})
    operators = {kept: [], other: []}
    for _, info in infos(given, turns=5):
        for name, solved in info.evidence.items():
            operators[name].append(vector(solved.factor.operator))
    same = {
        name: [bool(np.array_equal(one, two)) for one, two in itertools.pairwise(found)]
        for name, found in operators.items()
    }
    assert same == {kept: [True, True, False, True], other: [False] * 4}


def calls_of(primitive, jaxpr):
    """Which equations of a program hold a LAPACK call, and on which earlier ones each of them depends."""
    known, found = {}, []
    for equation in jaxpr.eqns:
        inputs = [variable for variable in equation.invars if not isinstance(variable, Literal)]
        seen = set().union(*(known.get(variable, set()) for variable in inputs))
        if primitive in str(equation):
            found.append(seen)
            seen = seen | {len(found) - 1}
        known |= dict.fromkeys(equation.outvars, seen)
    return found


@pytest.mark.parametrize(
    ("solver", "primitive"), [(direct(), "cholesky"), (dual(), "cholesky"), (shared(), "eigh")]
)
@pytest.mark.parametrize("refresh", [1, 2])
@pytest.mark.few(2)
def test_lapack_calls_wait_for_each_other_through_both_networks(solver, primitive, refresh):
    """Four layers, four calls, each after the one before; with a kept metric one loop for each network."""
    model = machine()
    estimate, method = drawn(model), natural_of(always(solver), constant(0.1), refresh=refresh)
    carry = jax.eval_shape(method.init, jax.random.key(0), model, estimate)
    found = calls_of(primitive, jax.make_jaxpr(method.apply)(jax.random.key(0), carry, model, estimate).jaxpr)
    assert len(found) == (4 if refresh == 1 else 2)
    assert found == [set(range(number)) for number in range(len(found))]


def test_the_whole_of_a_model_is_a_part_too():
    model = machine()
    assert WHOLE.get(model) is model
    part = Part(("prior", "recognition"))
    other = jax.tree.map(lambda leaf: leaf + 1, model)
    changed = part.put(model, part.get(other))
    np.testing.assert_array_equal(changed.prior, other.prior)
    np.testing.assert_array_equal(vector(changed.recognition), vector(other.recognition))
    np.testing.assert_array_equal(vector(changed.generation), vector(model.generation))


def test_lengths_of_some_parts_only_are_refused():
    model = machine()
    estimate = drawn(model)
    method = blockwise(
        {
            "generation": Block(fisher.GENERATION, paced(steepest(), lambda steps: 0.1)),
            "recognition": Block(fisher.RECOGNITION, steepest()),
        }
    )
    with pytest.raises(ValueError, match="expected a length of every direction or of none, got some"):
        direction_of(method, model, estimate)
