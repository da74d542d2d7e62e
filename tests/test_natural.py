"""The natural direction: against dense solves, in its limits, under change of coordinates."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from natgrad.models.helmholtz.reweighted import reweighted
from natgrad.solvers.krylov import conjugate_gradient
from natgrad.updates.diagnose import diagnose, named
from natgrad.updates.shaped import covector_momentum, trust_region

from cases import CODINGS, machine
from natgrad import tree
from natgrad.core import Estimate
from natgrad.layers.bernoulli import BINARY, SIGNED, Layer
from natgrad.metrics.blocks import join
from natgrad.models.helmholtz import fisher as per_unit
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.solvers.choice import always, automatic
from natgrad.solvers.diagonal import diagonal
from natgrad.solvers.direct import direct
from natgrad.updates.descent import descent
from natgrad.updates.natural import fisher_length, natural

pytestmark = pytest.mark.timeout(200)
DREAMS = per_unit.fisher(per_unit.generation_from_dreams, per_unit.recognition_from_dreams)
SAMPLES, ROWS = 20, 6


def drawn(model, seed=0, samples=SAMPLES) -> Estimate:
    on = jax.random.bernoulli(jax.random.key(3), 0.5, (model.sizes[0], ROWS))
    batch = model.coding.value(on, jnp.float64)
    return reweighted(samples).estimate(jax.random.key(seed), (), model, batch)[0]


def direction_of(direction, model, estimate):
    carry = direction.init(jax.random.key(0), model, estimate)
    return direction.apply(jax.random.key(0), carry, model, estimate)


def constant(value):
    return optax.constant_schedule(value)


def vector(model):
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(model)])


@pytest.mark.parametrize("coding", CODINGS)
def test_direction_is_the_dense_solve(coding):
    model = machine(coding=CODINGS[coding])
    estimate = drawn(model)
    found, _, evidence = direction_of(natural(DREAMS, always(direct()), constant(0.2)), model, estimate)
    for name in ("generation", "recognition"):
        for blocks, gradient, got in zip(
            getattr(evidence.fisher, name),
            getattr(estimate.gradient, name),
            getattr(found, name),
            strict=True,
        ):
            matrices = np.asarray(blocks.dense()) + 0.2 * np.eye(blocks.size)
            expected = 1.2 * np.linalg.solve(matrices, np.asarray(join(gradient))[..., None])[..., 0]
            np.testing.assert_allclose(join(got), expected, atol=1e-10)
    p = np.asarray(jax.nn.sigmoid(model.prior))
    np.testing.assert_allclose(found.prior, 1.2 * estimate.gradient.prior / (0.2 + p * (1 - p)), atol=1e-12)


@pytest.mark.parametrize("solver", [direct(), conjugate_gradient(3), diagonal()], ids=lambda s: s.name)
def test_large_damping_is_plain_descent(solver):
    model = machine()
    estimate = drawn(model)
    found, *_ = direction_of(natural(DREAMS, always(solver), constant(1e9)), model, estimate)
    np.testing.assert_allclose(vector(found), vector(estimate.gradient), rtol=1e-6, atol=1e-9)


def test_a_plain_network_keeps_its_gradient():
    model = machine()
    estimate = drawn(model)
    metric = per_unit.fisher(per_unit.generation_plain, per_unit.recognition_from_dreams)
    found, *_ = direction_of(natural(metric, always(direct()), constant(0.2)), model, estimate)
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
    method = natural(DREAMS, always(direct()), constant(1e-9))
    left, *_ = direction_of(method, signed, one)
    right, *_ = direction_of(method, binary, two)
    np.testing.assert_allclose(vector(recoded(left)), vector(right), rtol=1e-5, atol=1e-5)
    gap = np.abs(vector(recoded(one.gradient)) - vector(two.gradient)).max()
    assert gap > 0.1 * np.abs(vector(two.gradient)).max()


def lengths(choose, relative, samples=SAMPLES):
    """d^T F d of generation and recognition: as `fisher_length` has it, and by definition."""
    model = machine()
    estimate = drawn(model, samples=samples)
    direction = natural(DREAMS, choose, constant(0.1), relative=relative)
    found, _, evidence = direction_of(direction, model, estimate)
    image = evidence.fisher.mv(found)
    below = tree.vdot((found.prior, found.generation), (image.prior, image.generation))
    above = tree.vdot(found.recognition, image.recognition)
    return fisher_length(evidence.factors, estimate.gradient, found), (below, above)


@pytest.mark.parametrize("choose", [always(direct()), always(conjugate_gradient(3))], ids=["direct", "cg"])
@pytest.mark.parametrize("relative", [False, True])
def test_fisher_length(choose, relative):
    """From the solved equation, without another product; also for a truncated solve, over parameters."""
    found, expected = lengths(choose, relative, samples=24)  # more rows than conjugate gradients take as few
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_fisher_length_of_a_truncated_solve_in_sample_space():
    """Off by the square of the residual that is left."""
    errors = []
    for iterations in (3, 4, 8):
        found, expected = np.asarray(lengths(always(conjugate_gradient(iterations)), relative=False))
        errors.append(np.abs(found / expected - 1).max())
    assert errors[0] < 0.01
    assert errors[1] < 1e-3
    assert errors[2] < 1e-6


def test_relative_damping_is_in_units_of_the_mean_diagonal():
    model = machine()
    _, _, evidence = direction_of(
        natural(DREAMS, always(direct()), constant(0.5), relative=True), model, drawn(model)
    )
    blocks, measured = evidence.fisher.generation[0], evidence.factors.generation[0]
    mean = np.trace(np.asarray(blocks.dense()), axis1=1, axis2=2) / blocks.size
    np.testing.assert_allclose(measured.damping, 0.5 * mean, rtol=1e-12)


def test_refresh_keeps_the_metric_and_its_factor():
    """With K = 3, steps 0 to 2 use the first metric, step 3 a new one; the evidence shows the one in use."""
    model = machine()
    method = natural(DREAMS, always(direct()), constant(0.1), refresh=3)
    estimates = [drawn(model, seed) for seed in range(4)]
    carry = method.init(jax.random.key(0), model, estimates[0])
    fresh = natural(DREAMS, always(direct()), constant(0.1))
    for number, estimate in enumerate(estimates):
        found, carry, evidence = method.apply(jax.random.key(0), carry, model, estimate)
        used = estimates[0] if number < 3 else estimate
        expected, _, shown = direction_of(fresh, model, used._replace(gradient=estimate.gradient))
        np.testing.assert_allclose(vector(found), vector(expected), atol=1e-10)
        np.testing.assert_allclose(vector(evidence.fisher), vector(shown.fisher), atol=1e-12)


def test_a_refused_step_has_its_factors_made_anew():
    """They may be what was wrong; and nothing else of a refused step is carried on."""
    model = machine()
    method = natural(DREAMS, always(direct()), constant(0.1), refresh=3)
    estimates = [drawn(model, seed) for seed in range(3)]
    start = method.init(jax.random.key(0), model, estimates[0])
    _, first, _ = method.apply(jax.random.key(0), start, model, estimates[0])
    taken = method.keep(jnp.asarray(True), start, first)
    _, second, _ = method.apply(jax.random.key(0), taken, model, estimates[1])
    refused = method.keep(jnp.asarray(False), taken, second)
    assert (int(taken.age), int(refused.age)) == (1, 0)
    assert int(refused.steps) == int(taken.steps) == 1
    found, *_ = method.apply(jax.random.key(0), refused, model, estimates[2])
    fresh = natural(DREAMS, always(direct()), constant(0.1))
    expected, *_ = direction_of(fresh, model, estimates[2])
    np.testing.assert_allclose(vector(found), vector(expected), atol=1e-10)


def test_damping_follows_its_schedule():
    model = machine()
    estimate = drawn(model)
    method = natural(DREAMS, always(direct()), lambda step: 0.1 * (step.astype(jnp.float64) + 1))
    carry = method.init(jax.random.key(0), model, estimate)
    for number in range(3):
        _, carry, evidence = method.apply(jax.random.key(0), carry, model, estimate)
        np.testing.assert_allclose(evidence.factors.generation[0].damping, 0.1 * (number + 1), rtol=1e-6)


def test_trust_region_bounds_the_kl_of_both_networks():
    model = machine()
    estimate = drawn(model)
    inner = natural(DREAMS, always(direct()), constant(0.05))
    free, _, evidence = direction_of(inner, model, estimate)
    rate = 0.5
    lengths = [0.5 * rate**2 * float(x) for x in fisher_length(evidence.factors, estimate.gradient, free)]
    radius = min(lengths) / 2
    held, *_ = direction_of(trust_region(inner, radius, constant(rate)), model, estimate)
    after = [0.5 * rate**2 * float(x) for x in network_lengths(evidence.fisher, held)]
    np.testing.assert_allclose(after, radius, rtol=1e-6)
    loose, *_ = direction_of(trust_region(inner, 2 * max(lengths), constant(rate)), model, estimate)
    np.testing.assert_allclose(vector(loose), vector(free), rtol=1e-12)


def network_lengths(fisher, direction):
    image = fisher.mv(direction)
    below = tree.vdot((direction.prior, direction.generation), (image.prior, image.generation))
    return below, tree.vdot(direction.recognition, image.recognition)


def test_covector_momentum_averages_before_it_measures():
    model = machine()
    one, two = drawn(model, 0), drawn(model, 1)
    inner = natural(DREAMS, always(direct()), constant(0.1))
    method = covector_momentum(inner, 0.8)
    carry = method.init(jax.random.key(0), model, one)
    _, carry, _ = method.apply(jax.random.key(0), carry, model, one)
    found, _, _ = method.apply(jax.random.key(0), carry, model, two)
    mean = jax.tree.map(lambda a, b: 0.8 * 0.2 * a + 0.2 * b, one.gradient, two.gradient)
    expected, *_ = direction_of(inner, model, two._replace(gradient=mean))
    np.testing.assert_allclose(vector(found), vector(expected), atol=1e-10)


@pytest.mark.parametrize(
    ("optimizer", "scale"),
    [
        (optax.sgd(0.1), 1.0),
        (optax.identity(), -0.1),
        (optax.trace(0.9), -0.1),
        (optax.scale_by_adam(), -0.1),
    ],
)
def test_diagnostics_of_an_exact_natural_step(optimizer, scale):
    model = machine()
    direction = natural(DREAMS, always(direct()), constant(0.2))
    method = descent(reweighted(SAMPLES), direction, optimizer, scale=constant(scale))
    on = jax.random.bernoulli(jax.random.key(3), 0.5, (model.sizes[0], ROWS))
    batch = model.coding.value(on, jnp.float64)
    state = method.init(jax.random.key(0), model, batch)

    def stepped(key, state, batch):
        after, info = method.step(key, state, batch)
        return after, info, diagnose(info)

    with jax.numpy_dtype_promotion("standard"):
        after, info, numbers = jax.jit(stepped)(jax.random.key(1), state, batch)
    found = named(numbers)
    moved = jax.tree.map(jnp.subtract, after.model, model)
    assert found["step_norm"] == pytest.approx(float(tree.norm(moved)))
    assert found["generation.0.residual"] < 1e-10
    assert found["recognition.1.residual"] < 1e-10
    assert 0 < found["cosine"] < 1
    top = np.linalg.eigvalsh(np.asarray(info.evidence.fisher.generation[0].dense())).max()
    assert 1 < found["generation.0.condition"] <= (top + 0.2) / 0.2 + 1e-9
    assert found["generation.0.condition"] > 0.8 * (top + 0.2) / 0.2
    assert found["step_kl"] == pytest.approx(0.5 * float(tree.vdot(moved, info.evidence.fisher.mv(moved))))


def test_averaged_metric_is_solved_densely():
    model = machine()
    metric = per_unit.averaged(DREAMS, 0.5)
    found, *_ = direction_of(natural(metric, automatic(1, 3), constant(0.2)), model, drawn(model))
    expected, *_ = direction_of(natural(DREAMS, always(direct()), constant(0.2)), model, drawn(model))
    np.testing.assert_allclose(vector(found), vector(expected), atol=1e-10)


HANG = """
import jax, jax.numpy as jnp, optax
from natgrad.metrics import per_unit
from natgrad.models.helmholtz import helmholtz
from natgrad.objectives.reweighted import reweighted
from natgrad.solvers.choice import always
from natgrad.solvers.direct import direct
from natgrad.updates.descent import descent
from natgrad.updates.natural import natural
metric = per_unit.fisher(per_unit.generation_from_dreams, per_unit.recognition_from_dreams)
measured = natural(metric, always(direct()), optax.constant_schedule(0.2))
method = descent(reweighted(2), measured, optax.sgd(0.01))
model = helmholtz(jax.random.key(0), (100,) * 6)
batch = -jnp.ones((100, 16))
state = method.init(jax.random.key(1), model, batch)
step = jax.jit(method.step)
for turn in range(8):
    state, info = step(jax.random.key(turn), state, batch)
print("finished", jax.block_until_ready(info.value))
"""


def test_many_factorisations_in_one_step_do_not_hang():
    """Ten batches of Cholesky factorisations side by side wait for ever on two cores; ours are chained."""
    done = subprocess.run(
        [sys.executable, "-c", HANG], capture_output=True, text=True, timeout=150, check=False
    )
    assert "finished" in done.stdout, done.stderr[-2000:]
