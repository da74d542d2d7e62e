"""The natural direction: against dense solves, in its limits, under change of coordinates."""

import subprocess
import sys
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cases import CODINGS, machine
from natgrad import tree
from natgrad.core import Estimate
from natgrad.layers.bernoulli import BINARY, SIGNED, Layer
from natgrad.metrics.blocks import join
from natgrad.metrics.layered import averaged
from natgrad.models.helmholtz import fisher
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.models.helmholtz.phases import reweighted
from natgrad.solvers.choice import always, by_refresh
from natgrad.solvers.diagonal import diagonal
from natgrad.solvers.direct import direct
from natgrad.solvers.shared import shared
from natgrad.solvers.unit_cg import unit_conjugate_gradient
from natgrad.solvers.units import per_layer
from natgrad.updates.damping import constant, scheduled
from natgrad.updates.descent import descent
from natgrad.updates.describe import numbers_by_name, of_layers
from natgrad.updates.lengths import divergence_ball, learning_rate
from natgrad.updates.natural import Options, natural
from natgrad.updates.parts import Block, blockwise

pytestmark = pytest.mark.timeout(200)
SOURCES = {
    "generation": (fisher.GENERATION, fisher.generation_from_dreams()),
    "recognition": (fisher.RECOGNITION, fisher.recognition_from_dreams()),
}
SAMPLES, ROWS = 20, 6


def natural_of(choose, damping, *, parts=tuple(SOURCES), wrap=lambda metric: metric, **options):
    """The natural direction of a machine, by dreams, with the gain."""
    chosen = Options(damping=damping, gain=True, **options)
    blocks = {}
    for name in parts:
        part, metric = SOURCES[name]
        found = natural(wrap(metric), per_layer(choose), chosen, part=part, describe=of_layers(gain=True))
        blocks[name] = Block(part, found)
    return blockwise(blocks)


@partial(jax.jit, static_argnames="samples")
def drawn(model, seed=0, samples=SAMPLES) -> Estimate:
    on = jax.random.bernoulli(jax.random.key(3), 0.5, (model.sizes[0], ROWS))
    batch = model.coding.value(on, jnp.float64)
    return reweighted(samples).estimate(jax.random.key(seed), (), model, batch)[0]


@partial(jax.jit, static_argnums=0)
def direction_of(direction, model, estimate):
    carry = direction.init(jax.random.key(0), model, estimate)
    return direction.apply(jax.random.key(0), carry, model, estimate)


def vector(model):
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(model)])


@pytest.mark.parametrize("coding", ["signed", pytest.param("binary", marks=pytest.mark.slow)])
def test_direction_is_the_dense_solve(coding):
    model = machine(coding=CODINGS[coding])
    estimate = drawn(model)
    step = direction_of(natural_of(always(direct()), constant(0.2)), model, estimate)
    found = step.vector
    for name in ("generation", "recognition"):
        for blocks, gradient, got in zip(
            step.evidence[name].factor.operator.blocks[name],
            getattr(estimate.gradient, name),
            getattr(found, name),
            strict=True,
        ):
            matrices = np.asarray(blocks.dense()) + 0.2 * np.eye(blocks.size)
            expected = 1.2 * np.linalg.solve(matrices, np.asarray(join(gradient))[..., None])[..., 0]
            np.testing.assert_allclose(join(got), expected, atol=1e-10)
    p = np.asarray(jax.nn.sigmoid(model.prior))
    np.testing.assert_allclose(found.prior, 1.2 * estimate.gradient.prior / (0.2 + p * (1 - p)), atol=1e-12)


@pytest.mark.few(1)
@pytest.mark.parametrize("solver", [direct(), unit_conjugate_gradient(3), diagonal()], ids=lambda s: s.name)
def test_large_damping_is_plain_descent(solver):
    model = machine()
    estimate = drawn(model)
    found = direction_of(natural_of(always(solver), constant(1e9)), model, estimate).vector
    np.testing.assert_allclose(vector(found), vector(estimate.gradient), rtol=1e-6, atol=1e-9)


def test_a_plain_network_keeps_its_gradient():
    model = machine()
    estimate = drawn(model)
    method = natural_of(always(direct()), constant(0.2), parts=("recognition",))
    found = direction_of(method, model, estimate).vector
    np.testing.assert_array_equal(vector(found.generation), vector(estimate.gradient.generation))
    np.testing.assert_array_equal(found.prior, estimate.gradient.prior)
    assert np.abs(vector(found.recognition) - vector(estimate.gradient.recognition)).max() > 1e-3


def recoded(model: Helmholtz) -> Helmholtz:
    """The same distribution in {0,1} coding: W h + b with h = 2 y - 1 is 2 W y + (b - W 1)."""
    layer = lambda one: Layer(2 * one.weight, one.bias - one.weight.sum(axis=1))  # noqa: E731
    return Helmholtz(
        model.prior, tuple(map(layer, model.generation)), tuple(map(layer, model.recognition)), BINARY
    )


def test_undamped_step_does_not_depend_on_the_coordinates():
    """The two codings are linear coordinates of one machine: natural steps move it alike, plain do not."""
    signed = machine((3, 2, 2), SIGNED)
    binary = recoded(signed)
    one, two = drawn(signed), drawn(binary)
    np.testing.assert_allclose(one.value, two.value, atol=1e-12)
    method = natural_of(always(direct()), constant(1e-9))
    left, right = direction_of(method, signed, one).vector, direction_of(method, binary, two).vector
    np.testing.assert_allclose(vector(recoded(left)), vector(right), rtol=1e-5, atol=1e-5)
    gap = np.abs(vector(recoded(one.gradient)) - vector(two.gradient)).max()
    assert gap > 0.1 * np.abs(vector(two.gradient)).max()


length = jax.jit(lambda own, operator: tree.vdot(own, operator.mv(own)))


def network_lengths(evidence, direction):
    """d^T F d of generation and recognition, by definition."""
    found = []
    for name, (part, _) in SOURCES.items():
        own = part.get(direction)
        found.append(float(length(own, evidence[name].factor.operator)))
    return found


CURVED = {
    "direct": always(direct()),
    "cg": always(unit_conjugate_gradient(3)),
    "diagonal": always(diagonal()),
    "shared": always(shared(2)),
}


PLACES = {"in samples": SAMPLES, "over parameters": 24}
FEW = [("in samples", False, "cg"), ("over parameters", True, "cg")]  # test_solvers has all solvers
REST = [case for case in product(PLACES, (False, True), CURVED) if case not in FEW]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("place", "relative", "choose"), [*FEW, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)]
)
def test_curvature_is_the_length_in_the_metric(choose, relative, place):
    """Of the direction with its gain, also for truncated solves: with few rows, and with more than few."""
    model = machine()
    estimate = drawn(model, samples=PLACES[place])
    step = direction_of(natural_of(CURVED[choose], constant(0.1), relative=relative), model, estimate)
    found = [float(step.evidence[name].curvature) for name in SOURCES]
    np.testing.assert_allclose(found, network_lengths(step.evidence, step.vector), rtol=1e-10)


def test_relative_damping_is_in_units_of_the_mean_diagonal():
    model = machine()
    method = natural_of(always(direct()), constant(0.5), relative=True)
    estimate = drawn(model)
    step = direction_of(method, model, estimate)
    factor = step.evidence["generation"].factor
    *layers, prior = factor.damping
    np.testing.assert_allclose(prior, 0.5 * fisher.curvature(model.prior), rtol=1e-12)
    for number, damping in enumerate(layers):
        blocks = factor.operator.blocks["generation"][number]
        mean = np.trace(np.asarray(blocks.dense()), axis1=1, axis2=2) / blocks.size
        np.testing.assert_allclose(damping, 0.5 * mean, rtol=1e-12)
        system = np.asarray(blocks.dense()) + 0.5 * mean[:, None, None] * np.eye(blocks.size)
        right = np.asarray(join(estimate.gradient.generation[number]))[..., None]
        expected = (1 + 0.5 * mean)[:, None] * np.linalg.solve(system, right)[..., 0]
        np.testing.assert_allclose(join(step.vector.generation[number]), expected, atol=1e-10)


def test_refresh_keeps_the_metric_and_its_factor():
    """With K = 3, steps 0 to 2 use the first metric, step 3 a new one; the evidence shows the one in use."""
    model = machine()
    method = natural_of(always(direct()), constant(0.1), refresh=3)
    estimates = [drawn(model, seed) for seed in range(4)]
    carry = jax.jit(method.init)(jax.random.key(0), model, estimates[0])
    fresh = natural_of(always(direct()), constant(0.1))
    apply = jax.jit(method.apply)
    for number, estimate in enumerate(estimates):
        found = apply(jax.random.key(0), carry, model, estimate)
        carry = found.carry
        used = estimates[0] if number < 3 else estimate
        expected = direction_of(fresh, model, used._replace(gradient=estimate.gradient))
        np.testing.assert_allclose(vector(found.vector), vector(expected.vector), atol=1e-10)
        shown, right = (
            {name: solved.factor.operator for name, solved in step.evidence.items()}
            for step in (found, expected)
        )
        np.testing.assert_allclose(vector(shown), vector(right), atol=1e-12)


@pytest.mark.slow
def test_a_refused_step_has_its_factors_made_again():
    """They may be what was wrong. Steps are counted; no average has anything of a refused step."""
    model = machine()
    settings = {"refresh": 3, "gradient_decay": 0.5, "wrap": lambda metric: averaged(metric, 0.5)}
    method = natural_of(always(direct()), constant(0.1), **settings)
    apply = jax.jit(method.apply)
    estimates = [drawn(model, seed) for seed in range(3)]
    start = jax.jit(method.init)(jax.random.key(0), model, estimates[0])
    first = apply(jax.random.key(0), start, model, estimates[0]).carry
    taken = method.keep(jnp.asarray(True), start, first)
    second = apply(jax.random.key(0), taken, model, estimates[1]).carry
    refused = method.keep(jnp.asarray(False), taken, second)
    for name in SOURCES:
        assert (int(taken[name].age), int(refused[name].age)) == (1, 0)
        assert (int(taken[name].steps), int(refused[name].steps)) == (1, 2)
        for kept in ("gradient", "metric", "level"):
            same = [vector(getattr(carry[name], kept)) for carry in (taken, refused)]
            np.testing.assert_array_equal(*same)
    found = apply(jax.random.key(0), refused, model, estimates[2]).vector
    again = {name: kept._replace(age=jnp.zeros_like(kept.age)) for name, kept in taken.items()}
    expected = apply(jax.random.key(0), again, model, estimates[2]).vector
    np.testing.assert_allclose(vector(found), vector(expected), atol=1e-10)
    plain = natural_of(always(direct()), constant(0.1), refresh=3)
    made = direction_of(plain, model, estimates[0])
    refused = plain.keep(jnp.asarray(False), made.carry, made.carry)
    found = jax.jit(plain.apply)(jax.random.key(0), refused, model, estimates[2]).vector
    fresh = direction_of(natural_of(always(direct()), constant(0.1)), model, estimates[2]).vector
    np.testing.assert_allclose(vector(found), vector(fresh), atol=1e-10)


def test_damping_follows_its_schedule():
    model = machine()
    estimate = drawn(model)
    method = natural_of(always(direct()), scheduled(lambda step: 0.1 * (step.astype(jnp.float64) + 1)))
    apply, carry = jax.jit(method.apply), jax.jit(method.init)(jax.random.key(0), model, estimate)
    for number in range(3):
        step = apply(jax.random.key(0), carry, model, estimate)
        carry = step.carry
        for solved in step.evidence.values():
            np.testing.assert_allclose(solved.factor.damping, 0.1 * (number + 1), rtol=1e-6)
            np.testing.assert_allclose(solved.evidence.damping, 0.1 * (number + 1), rtol=1e-6)


@pytest.mark.slow
def test_a_divergence_ball_bounds_the_kl_of_both_networks():
    model = machine()
    estimate = drawn(model)
    rate = 0.5
    free = direction_of(natural_of(always(direct()), constant(0.05)), model, estimate)
    assert free.length is None
    lengths = [0.5 * rate**2 * x for x in network_lengths(free.evidence, free.vector)]

    def within(radius):
        ball = divergence_ball(radius, longest=learning_rate(rate))
        return direction_of(natural_of(always(direct()), constant(0.05), length=ball), model, estimate)

    radius = min(lengths) / 2
    held = within(radius)
    moved = tree.scale(held.length, held.vector)
    after = [0.5 * x for x in network_lengths(held.evidence, moved)]
    np.testing.assert_allclose(after, radius, rtol=1e-6)
    shown = [float(solved.evidence.divergence) for solved in held.evidence.values()]
    np.testing.assert_allclose(shown, radius, rtol=1e-6)
    loose = within(2 * max(lengths))
    np.testing.assert_allclose(vector(loose.vector), vector(free.vector), rtol=1e-12)
    np.testing.assert_array_equal(vector(loose.length), rate)


@pytest.mark.slow
def test_averages_of_gradients_are_taken_before_they_are_measured():
    model = machine()
    one, two = drawn(model, 0), drawn(model, 1)
    method = natural_of(always(direct()), constant(0.1), gradient_decay=0.8)
    apply, carry = jax.jit(method.apply), jax.jit(method.init)(jax.random.key(0), model, one)
    carry = apply(jax.random.key(0), carry, model, one).carry
    found = apply(jax.random.key(0), carry, model, two).vector
    blend = jax.jit(lambda a, b: tree.add(tree.scale(0.8 * 0.2, a), tree.scale(0.2, b)))
    mean = blend(one.gradient, two.gradient)
    inner = natural_of(always(direct()), constant(0.1))
    expected = direction_of(inner, model, two._replace(gradient=mean)).vector
    np.testing.assert_allclose(vector(found), vector(expected), atol=1e-10)


@pytest.mark.parametrize(
    ("optimizer", "scale"),
    [
        (optax.sgd(0.1), 1.0),
        *(
            pytest.param(each, -0.1, marks=pytest.mark.slow)
            for each in (optax.identity(), optax.trace(0.9), optax.scale_by_adam())
        ),
    ],
)
@pytest.mark.slow
def test_diagnostics_of_an_exact_natural_step(optimizer, scale):
    model = machine()
    direction = natural_of(always(direct()), constant(0.2))
    method = descent(reweighted(SAMPLES), direction, optimizer, scale=optax.constant_schedule(scale))
    on = jax.random.bernoulli(jax.random.key(3), 0.5, (model.sizes[0], ROWS))
    batch = model.coding.value(on, jnp.float64)
    state = jax.jit(method.init)(jax.random.key(0), model, batch)

    def stepped(key, state, batch):
        after, info = method.step(key, state, batch)
        return after, info, method.describe(info)

    with jax.numpy_dtype_promotion("standard"):
        after, info, numbers = jax.jit(stepped)(jax.random.key(1), state, batch)
    found = numbers_by_name(numbers)
    moved = jax.tree.map(jnp.subtract, after.model, model)
    assert found["step_norm"] == pytest.approx(float(tree.norm(moved)))
    assert found["generation.0.residual"] < 1e-10
    assert found["recognition.1.residual"] < 1e-10
    assert 0 < found["cosine"] < 1
    blocks = info.evidence["generation"].factor.operator.blocks["generation"][0]
    top = np.linalg.eigvalsh(np.asarray(blocks.dense())).max()
    assert 1 < found["generation.0.condition"] <= (top + 0.2) / 0.2 + 1e-9
    assert found["generation.0.condition"] > 0.8 * (top + 0.2) / 0.2
    assert found["step_kl"] == pytest.approx(0.5 * sum(network_lengths(info.evidence, moved)))


def test_averaged_metric_is_solved_densely():
    model = machine()
    mean = natural_of(by_refresh(1, 3), constant(0.2), wrap=lambda metric: averaged(metric, 0.5))
    found = direction_of(mean, model, drawn(model)).vector
    expected = direction_of(natural_of(always(direct()), constant(0.2)), model, drawn(model)).vector
    np.testing.assert_allclose(vector(found), vector(expected), atol=1e-10)


HANG = """
import jax, jax.numpy as jnp, optax
from natgrad.models.helmholtz import fisher
from natgrad.models.helmholtz.machine import helmholtz
from natgrad.models.helmholtz.phases import reweighted
from natgrad.solvers.choice import always
from natgrad.solvers.direct import direct
from natgrad.solvers.units import per_layer
from natgrad.updates.damping import constant
from natgrad.updates.descent import descent
from natgrad.updates.natural import Options, natural
from natgrad.updates.parts import Block, blockwise
solver, options = per_layer(always(direct())), Options(damping=constant(0.2), gain=True)
make = lambda metric, part: Block(part, natural(metric, solver, options, part=part))
directions = blockwise({
    "generation": make(fisher.generation_from_dreams(), fisher.GENERATION),
    "recognition": make(fisher.recognition_from_dreams(), fisher.RECOGNITION),
})
method = descent(reweighted(2), directions, optax.sgd(0.01))
model = helmholtz(jax.random.key(0), (100,) * 6)
batch = -jnp.ones((100, 16))
state = method.init(jax.random.key(1), model, batch)
step = jax.jit(method.step)
for turn in range(8):
    state, info = step(jax.random.key(turn), state, batch)
print("finished", jax.block_until_ready(info.value))
"""


@pytest.mark.slow
def test_many_factorizations_in_one_step_do_not_hang(usual_environment):
    """Ten batches of Cholesky factorizations side by side wait forever on two cores; ours are chained."""
    done = subprocess.run(
        [sys.executable, "-c", HANG], capture_output=True, text=True, timeout=150, env=usual_environment
    )
    assert "finished" in done.stdout, done.stderr[-2000:]
