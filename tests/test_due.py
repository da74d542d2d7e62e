"""A metric that is renewed when the model has moved: by dense matrices, and in every kind of model."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natgrad
from cases import machine
from natgrad import config, tree
from natgrad.core import Pace
from natgrad.errors import InputError
from natgrad.metrics.blocks import join
from natgrad.models.helmholtz import methods
from natgrad.solvers.choice import always
from natgrad.solvers.direct import direct
from natgrad.solvers.shared import shared
from natgrad.updates.damping import constant
from natgrad.updates.kept import Drift
from natgrad.updates.lengths import learning_rate
from test_natural import SOURCES, drawn, natural_of, vector

pytestmark = pytest.mark.timeout(200)
STEPS, BOUND = 14, 0.15
FALLING = 0.9


@pytest.fixture
def promotion():
    """optax's schedules want JAX's own rules of promotion."""
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "strict")


def rate(steps):
    return 0.5 * jnp.asarray(FALLING, jnp.float64) ** jnp.asarray(steps, jnp.float64)


def squared_length(name, operator, step):
    """step^T F step of one network, with every block as a matrix."""
    total = 0.0
    for blocks, layer in zip(operator.blocks[name], getattr(step, name), strict=True):
        matrices, vectors = np.asarray(blocks.dense()), np.asarray(join(layer))
        total += np.einsum("ji,jik,jk->", vectors, matrices, vectors)
    if name == "generation":
        total += (np.asarray(operator.blocks["prior"]) * np.asarray(step.prior) ** 2).sum()
    return total


def steps_taken(method):
    """Steps along a direction, each of its own draws; the model moves."""
    model = machine()
    estimates = [drawn(model, seed) for seed in range(STEPS)]
    carry, apply = jax.jit(method.init)(jax.random.key(0), model, estimates[0]), jax.jit(method.apply)
    for number, estimate in enumerate(estimates):
        found = apply(jax.random.key(number), carry, model, estimate)
        carry = method.keep(jnp.asarray(True), carry, found.carry)
        step = tree.scale(-rate(number), found.vector)
        model = tree.add(model, step)
        yield found.evidence, step


KEPT = {
    "exact": (direct(), {}),
    "exact, a length of its own": (direct(), {"length": learning_rate(rate)}),
    "shared": (shared(2), {}),
    "relative": (direct(), {"relative": True}),
    "four steps at most": (direct(), {"refresh": 4}),
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.few(1)
def test_a_metric_is_renewed_exactly_when_its_steps_pass_the_bound(name):
    solver, options = KEPT[name]
    options = {"refresh": 1000, "drift": Drift(BOUND, rate), **options}
    moved, renewals, age, used = ({part: None for part in SOURCES} for _ in range(4))
    for evidence, step in steps_taken(natural_of(always(solver), constant(0.1), **options)):
        for part, solved in evidence.items():
            first = moved[part] is None
            if first or moved[part] > BOUND or age[part] + 1 == options["refresh"]:
                renewals[part] = 1 if first else renewals[part] + 1
                moved[part], age[part], used[part] = 0.0, 0, vector(solved.factor.operator)
            else:
                age[part] += 1
            np.testing.assert_array_equal(vector(solved.factor.operator), used[part])
            moved[part] += 0.5 * squared_length(part, solved.factor.operator, step)
            np.testing.assert_allclose(float(solved.travel.moved), moved[part], rtol=1e-8)
            assert (int(solved.age), int(solved.travel.renewals)) == (age[part], renewals[part])
    for count in renewals.values():
        assert 2 < count < STEPS - 3  # some steps renew, some do not


def test_a_refused_step_renews_the_metric():
    model = machine()
    method = natural_of(always(direct()), constant(0.1), refresh=1000, drift=Drift(1e9, rate))
    estimates, apply = [drawn(model, seed) for seed in range(3)], jax.jit(method.apply)
    start = jax.jit(method.init)(jax.random.key(0), model, estimates[0])
    first = method.keep(jnp.asarray(True), start, apply(jax.random.key(0), start, model, estimates[0]).carry)
    second = apply(jax.random.key(0), first, model, estimates[1])
    for taken, expected in ((True, 1), (False, 2)):
        carry = method.keep(jnp.asarray(taken), first, second.carry)
        found = apply(jax.random.key(0), carry, model, estimates[2]).evidence
        assert {int(solved.travel.renewals) for solved in found.values()} == {expected}


@pytest.mark.slow
@pytest.mark.usefixtures("promotion")
def test_each_network_of_a_config_has_its_own_rate_and_count():
    """The step of a whole method, by the rates of the config: its KL is what the trace says."""
    chosen = {"method": "nrws", "layers": (3, 2), "samples": 4, "metric.renewal_kl": 1e-3, "solver": "direct"}
    settings = config.resolve(chosen | {"generation.rate": 0.3, "optimizer.schedule": "cosine"})
    assert settings.metric.refresh == 1000
    algorithm, model = methods.algorithm(settings, 4, Pace(20)), machine()
    batch = model.coding.value(jax.random.bernoulli(jax.random.key(3), 0.5, (4, 6)), jnp.float64)
    state, step = jax.jit(algorithm.init)(jax.random.key(1), model, batch), jax.jit(algorithm.step)
    moved = dict.fromkeys(SOURCES, 0.0)
    for turn in range(6):
        state, info = step(jax.random.key(turn), state, batch)
        numbers = algorithm.describe(info)
        for part, solved in info.evidence.items():
            length = 0.5 * squared_length(part, solved.factor.operator, info.update)
            moved[part] = length + (moved[part] if int(solved.age) else 0.0)
            np.testing.assert_allclose(float(numbers[f"{part}.metric_moved"]), moved[part], rtol=1e-5)
            assert float(numbers[f"{part}.metric_age"]) == int(solved.age)
    renewals = [float(numbers[f"{part}.metric_renewals"]) for part in SOURCES]
    assert renewals[0] > renewals[1] >= 1  # a larger rate moves further


KINDS = {
    "mlp": {"model": "mlp", "layers": (5,), "learning_rate": 0.1},
    "mlp, once diverged": {"model": "mlp", "layers": (5,), "learning_rate": 3.0},
    "mlp, units": {"model": "mlp", "method": "units", "layers": (5,)},
    "helmholtz, sleeps": {"layers": (5,), "samples": 2, "objective.sleeps": 2, "metric.recognition": "mixed"},
    "rbm": {"model": "rbm", "method": "natural", "model.hidden": 5},
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name != "mlp" else ()) for name in KINDS]
)
@pytest.mark.usefixtures("promotion")
@pytest.mark.slow
def test_every_kind_counts_how_far_it_moved(name, tmp_path):
    """With a bound that is never reached: one renewal, the travel of all steps after it."""
    bounded = {"metric.renewal_kl": 1e9, "epochs": 1, "data.train_rows": 100, "batch_size": 10}
    natgrad.train(data="digits", out=tmp_path / "run", **bounded, **KINDS[name])
    last = [json.loads(line) for line in (tmp_path / "run" / "trace.jsonl").read_text().splitlines()][-1]
    parts = [key.removesuffix("metric_renewals") for key in last if key.endswith("metric_renewals")]
    assert parts
    assert (last["divergences"] > 0) == ("diverged" in name)
    for part in parts:
        assert (last[f"{part}metric_renewals"], last[f"{part}metric_age"]) == (1, last["step"] - 1)
        assert last[f"{part}metric_moved"] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"metric.renewal_kl": 0.1, "refresh": 1},
            "renewal_kl says when .* got metric.refresh 1, .* leave one",
        ),
        (
            {"metric.renewal_kl": 0.1, "generation.refresh": 1},
            "renewal_kl says when .* got generation.refresh 1, .* leave one",
        ),
        (
            {"model": "mlp", "metric.renewal_kl": 0.1, "refresh": 1},
            "renewal_kl says when .* got metric.refresh 1, .* leave one",
        ),
        (
            {"metric.renewal_kl": 0.1, "optimizer": "adam"},
            "natural steps, got the optimizer adam, .* use sgd",
        ),
        (
            {"model": "mlp", "method": "units", "metric.renewal_kl": 0.1, "optimizer": "momentum"},
            "natural steps, got the optimizer momentum",
        ),
        ({"metric.renewal_kl": -1.0}, "metric.renewal_kl: expected a number greater than or equal to 0"),
        ({"method": "rws", "metric.renewal_kl": 0.1}, "metric.renewal_kl is not a setting of the method rws"),
    ],
)
def test_what_cannot_be_counted_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        config.resolve(settings)
