"""The Fisher of joint and marginal model against sums over all states; every solver against dense algebra."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from boltzmann_cases import Enumerated, made

from natgrad import InputError
from natgrad.layers import generator
from natgrad.metrics.probing import dense
from natgrad.models.rbm import covariance, fisher, fisher_moments, machine, negative, objectives, solving
from natgrad.models.rbm.gibbs import Drawn
from natgrad.models.rbm.partition import exact_log_z
from natgrad.models.rbm.sections import JointFisher

flat = fisher.raveled


@pytest.mark.parametrize(("coding", "sizes"), [("binary", (4, 3)), ("signed", (2, 4))])
@pytest.mark.few(1)
def test_the_exact_fisher(coding, sizes, monkeypatch):
    model = made(coding, sizes)
    every = Enumerated(model, coding)
    if sizes == (2, 4):
        monkeypatch.setattr(covariance, "_PORTION", 40)  # two states at a time
    np.testing.assert_allclose(jax.jit(covariance.joint_covariance)(model), every.fisher(), atol=1e-10)
    marginal = jax.jit(lambda at: covariance.joint_covariance(at, marginal=True))(model)
    np.testing.assert_allclose(marginal, every.marginal_fisher(), atol=1e-10)
    assert np.linalg.eigvalsh(every.fisher() - marginal).min() > -1e-10  # E[Cov(T | v)]


def test_the_exact_fisher_is_the_hessian_of_log_z():
    model = made(sizes=(3, 2), gaussian=True)
    slope = lambda x: flat(jax.grad(exact_log_z)(fisher.unraveled(model, x)))  # noqa: E731
    steps = 1e-5 * jnp.eye(flat(model).size)
    ends = jax.jit(jax.vmap(slope))(flat(model) + jnp.concatenate([steps, -steps]))
    up, down = np.split(np.asarray(ends), 2)
    np.testing.assert_allclose(jax.jit(covariance.joint_covariance)(model), (up - down) / 2e-5, atol=1e-8)


@pytest.mark.parametrize(("coding", "sizes"), [("binary", (4, 3)), ("signed", (2, 4))])
@pytest.mark.slow
def test_the_four_pictures_of_the_fisher(coding, sizes):
    """E[T], E[T T'], the Fisher and the inverse, each against the sum over all states."""
    model = made(coding, sizes)
    every = Enumerated(model, coding)
    found, t = fisher_moments.exact_moments(model, 0.1), every.features()
    np.testing.assert_allclose(found.mean, every.mean(), atol=1e-10)
    np.testing.assert_allclose(found.second, (t * every.p) @ t.T, atol=1e-10)
    np.testing.assert_allclose(found.fisher, every.fisher(), atol=1e-10)
    damped = every.fisher() + 0.1 * np.eye(len(t))
    np.testing.assert_allclose(found.inverse @ damped, np.eye(len(t)), atol=1e-9)
    assert sum(found.parts.values()) == len(t)


@pytest.mark.slow
def test_the_pictures_of_one_hidden_unit():
    """Of a large machine: all states as samples, as often as they are probable."""
    model, every = looked_at("binary")
    operator, unit = weighted("binary"), int(np.argmax(np.linalg.norm(np.asarray(model.weight), axis=1)))
    found = fisher_moments.unit_moments(model, operator.visible, operator.hidden, 0.1)
    places = [*range(4 * unit, 4 * unit + 4), 12 + unit]
    np.testing.assert_allclose(found.fisher, np.asarray(dense(operator))[np.ix_(places, places)], atol=1e-10)
    np.testing.assert_allclose(found.mean, every.mean()[places], atol=0.01)
    np.testing.assert_allclose(found.second, found.fisher + np.outer(found.mean, found.mean), atol=1e-12)
    np.testing.assert_allclose(found.inverse @ (found.fisher + 0.1 * np.eye(5)), np.eye(5), atol=1e-10)


@functools.cache
def looked_at(coding):
    """A machine, and all that there is to know of it."""
    model = made(coding)
    return model, Enumerated(model, coding)


@functools.cache
def weighted(coding, marginal=False):
    """A sampled Fisher whose samples are all states, as often as they are probable (to one in a thousand)."""
    model, every = looked_at(coding)
    counts = np.round(1000 * every.p).astype(int)
    visible, hidden = (jnp.asarray(np.repeat(x, counts, axis=1)) for x in (every.v, every.h))
    inputs = jax.jit(machine.hidden_inputs)(model, visible)
    offsets = machine.Offsets(jnp.linspace(0, 0.5, 4), jnp.linspace(0.3, 0.6, 3))
    drawn = objectives.Contrast(visible, Drawn(visible, inputs, hidden), offsets)
    return fisher.sampled_fisher(marginal=marginal).measure(generator.key(0), (), model, drawn)[0]


@pytest.mark.parametrize(("coding", "marginal"), [("binary", False), ("signed", True)])
def test_products_of_the_sampled_fisher(coding, marginal):
    model, every = looked_at(coding)
    operator = weighted(coding, marginal)
    h, v = np.asarray(operator.hidden), np.asarray(operator.visible)
    rows = np.concatenate([(h[:, None] * v).reshape(12, -1), h, v]).T
    rows = (rows - rows.mean(axis=0)) / np.sqrt(len(rows))
    x = np.arange(19.0)

    @jax.jit
    def products(operator, x):
        found = operator.bind()
        pulled, pushed = flat(found.pull(rows @ x)), found.push(fisher.unraveled(model, x))
        return dense(operator), pushed, pulled, found.gram(), flat(found.diagonal()), operator.factor_rows()

    whole = rows.T @ rows
    expected = whole, rows @ x, whole @ x, rows @ rows.T, np.diag(whole), rows
    for one, other in zip(products(operator, x), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)
    exact = every.marginal_fisher() if marginal else every.fisher()
    np.testing.assert_allclose(rows.T @ rows, exact, atol=0.03)


def stored(coding):
    model, every = looked_at(coding)
    return fisher.StoredFisher(jnp.asarray(every.fisher()), weighted(coding).offsets, model)


@pytest.mark.few(1)
@pytest.mark.parametrize(("coding", "kind"), [("signed", "sampled"), ("binary", "stored")])
def test_the_metric_in_the_centered_chart(coding, kind):
    model, every = looked_at(coding)
    operator = weighted(coding)
    if kind == "stored":
        operator = stored(coding)
    chart = jax.vmap(lambda x: flat(machine.from_centered(fisher.unraveled(model, x), operator.offsets)))
    a = np.asarray(chart(jnp.eye(19))).T
    expected = a.T @ np.asarray(dense(operator)) @ a
    np.testing.assert_allclose(dense(operator.centered()), expected, atol=1e-10)
    np.testing.assert_allclose(operator.mean_diagonal(generator.key(0)), np.trace(expected) / 19, atol=1e-12)
    if kind == "stored":
        expected = every.fisher(operator.offsets)
        np.testing.assert_allclose(operator.centered().matrix, expected, atol=1e-10)


@pytest.mark.few(1)
@pytest.mark.parametrize(("coding", "kind"), [("binary", "sampled"), ("signed", "stored")])
def test_blocks_are_those_of_the_whole(coding, kind):
    operator = weighted(coding)
    if kind == "stored":
        operator = stored(coding)
    whole, blocks = np.asarray(dense(operator)), operator.blocks()
    for unit, block in enumerate(blocks.blocks.hidden.dense()):
        places = [*range(4 * unit, 4 * unit + 4), 12 + unit]
        np.testing.assert_allclose(block, whole[np.ix_(places, places)], atol=1e-10)
    np.testing.assert_allclose(blocks.blocks.visible_bias, np.diag(whole)[-4:], atol=1e-10)


def kept_of(name, whole):
    """The part of a matrix that a solver keeps."""
    if name == "diagonal":
        return np.diag(np.diag(whole))
    if name != "blocks":
        return whole
    group = np.concatenate([np.repeat(np.arange(3), 4), np.arange(3), 3 + np.arange(4)])
    return np.where(group[:, None] == group, whole, 0)


def solver_named(name):
    return solving.WHOLE_SOLVERS[name](JointFisher(solver=name, iterations=60))


WAYS = [(name, False) for name in (*solving.WHOLE_SOLVERS, "unrefined")]


@pytest.mark.parametrize(("name", "centered"), [*WAYS, ("auto", True), ("unrefined", True), ("blocks", True)])
@pytest.mark.few(3)
def test_every_solver_solves_its_part(name, centered):
    model, _ = looked_at("signed")
    operator, gradient, damping = weighted("signed"), made("signed", seed=5), jnp.asarray(0.1)
    solver = solving.dual_solve(refine=False) if name == "unrefined" else solver_named(name)
    if centered:
        solver = solving.centering(solver)
    found = jax.jit(lambda o, g: solver.solve(solver.prepare(o, damping, 0.0)[0], g, None))(
        operator, gradient
    )
    chart = jax.vmap(lambda x: flat(machine.from_centered(fisher.unraveled(model, x), operator.offsets)))
    a = np.asarray(chart(jnp.eye(19))).T if centered else np.eye(19)
    kept = kept_of(name, a.T @ np.asarray(dense(operator)) @ a)
    inner = np.linalg.solve(kept + 0.1 * np.eye(19), a.T @ np.asarray(flat(gradient)))
    np.testing.assert_allclose(flat(found.value), a @ inner, atol=2e-3 if name in ("cg", "minres") else 1e-9)
    np.testing.assert_allclose(found.curvature, inner @ kept @ inner, rtol=1e-3)


@pytest.mark.parametrize("marginal", [False, True])
def test_blocks_in_sample_space_are_the_same_blocks(marginal):
    """With no more samples than visible units the blocks are not stored, and the solution is the same."""
    whole, gradient, damping = weighted("signed", marginal), made("signed", seed=5), jnp.asarray(0.1)
    few = dataclasses.replace(whole, visible=whole.visible[:, ::300], hidden=whole.hidden[:, ::300])
    assert 1 < few.visible.shape[1] <= 4

    @functools.partial(jax.jit, static_argnums=0)
    def solved(solver, operator):
        return solver.solve(solver.prepare(operator, damping, 0.0)[0], gradient, None)

    found, expected = solved(solving.blocks_alone(), few), solved(solving.blocks_stored(), few)
    np.testing.assert_allclose(flat(found.value), flat(expected.value), atol=1e-12)
    np.testing.assert_allclose(found.curvature, expected.curvature, rtol=1e-12)
    shapes = jax.eval_shape(lambda: solving.blocks_alone().prepare(few, damping, 0.0)[0].inner)
    assert shapes.shape == (3, few.visible.shape[1], few.visible.shape[1])


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("centered", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("marginal", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_gradient_as_a_sum_over_samples_has_the_same_solution(fresh, centered, marginal):
    """Fresh: the metric is that of the gradient's own chains. Otherwise it was kept from another step."""
    model = made("signed", (6, 5))
    rows = jnp.asarray(np.random.default_rng(0).choice([-1.0, 1.0], (6, 9)))
    objective = objectives.sampled_likelihood(negative.persistent(11), centering=True, factored=True)
    carry = objective.init(generator.key(1), model, rows)
    now, last = (jax.jit(objective.estimate)(generator.key(n), carry, model, rows)[0] for n in (2, 3))
    metric = fisher.sampled_fisher(marginal=marginal)
    operator, _ = jax.jit(metric.measure)(generator.key(0), (), model, (now if fresh else last).samples)
    found = []
    solvers = (solving.in_sample_space(fresh=fresh), solving.dense_solve())
    for solver, gradient in zip(solvers, (now.gradient, now.gradient.whole()), strict=True):
        charted = solving.centering(solver) if centered else solver
        whole = jax.jit(lambda a, b, s=charted: s.solve(s.prepare(a, jnp.asarray(0.1), 0.0)[0], b, None))
        found.append(whole(operator, gradient))
    np.testing.assert_allclose(flat(found[0].value), flat(found[1].value), atol=1e-10)
    np.testing.assert_allclose(found[0].curvature, found[1].curvature, rtol=1e-8)
    phases = (now.samples.chains.visible, now.samples.rows)
    ends = [machine.statistics(model, v, machine_means(model, v)) for v in phases]
    np.testing.assert_allclose(flat(now.gradient.whole()), flat(ends[0]) - flat(ends[1]), atol=1e-12)


def machine_means(model, visible):
    return model.hidden_units.mean(machine.hidden_inputs(model, visible))


def test_a_direction_does_not_depend_on_the_chart_without_damping():
    gradient, operator, plain = made(seed=7), stored("binary"), solving.dense_solve()
    found = []
    for solver in (plain, solving.centering(plain)):
        factor, _ = solver.prepare(operator, jnp.asarray(0.0), 0.0)
        found.append(flat(solver.solve(factor, gradient, None).value))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"visible": 784, "hidden": 500}, "at most 4096, got 393284"),
        ({"visible": 40, "hidden": 20}, "at most 16 units, got 20"),
        ({"visible": 3, "hidden": 2, "gaussian": True, "marginal": True}, "needs Bernoulli units"),
    ],
)
def test_what_is_too_large_for_an_exact_fisher(arguments, words):
    with pytest.raises(InputError, match=words):
        covariance.check_storable(**{"gaussian": False, "marginal": False} | arguments)


def large(chains):
    """The shapes of a sampled Fisher of 784 x 500 units."""
    model = jax.eval_shape(lambda: made(sizes=(784, 500)))
    rows = jax.ShapeDtypeStruct((784, chains), float), jax.ShapeDtypeStruct((500, chains), float)
    offsets = machine.Offsets(model.visible_bias, model.hidden_bias)
    return fisher.SampledFisher(*rows, offsets, model.visible_units, model.hidden_units)


def test_blocks_of_a_large_machine_are_not_stored():
    factor, _ = jax.eval_shape(lambda at: solving.blocks_alone().prepare(at, 0.1, 0.0), large(100))
    assert max(leaf.size for leaf in jax.tree.leaves(factor)) == 500 * 100 * 100


def test_blocks_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="fewer --chains, --solver diagonal"):
        jax.eval_shape(lambda at: solving.blocks_alone().prepare(at, 0.1, 0.0), large(1000))
