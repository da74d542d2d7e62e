"""Fisher metrics of both networks against dense matrices, sums over all states and quadrature, in float64."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from vae_cases import VISIBLE, hermite, made, states

from natgrad.layers import generator
from natgrad.layers.outputs import normal
from natgrad.metrics.probing import dense
from natgrad.models.vae import fisher
from natgrad.models.vae.exact import joint_fisher, marginal_fisher
from natgrad.models.vae.machine import (
    GENERATION,
    RECOGNITION,
    generation_outputs,
    log_visible,
    recognition_outputs,
    recognized,
)
from natgrad.models.vae.objectives import LatentDraws

ROWS = 6
SIDES = {
    "recognition": fisher.RECOGNITION_SIDE,
    "generation": fisher.generation_side(fisher.from_recognition),
    "prior": fisher.generation_side(fisher.from_prior),
}


def drawn(model, rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, VISIBLE)) if model.gaussian else rng.integers(0, 2, (rows, VISIBLE)) * 1.0
    return LatentDraws(jnp.asarray(values), jnp.asarray(rng.normal(size=(rows, 2, model.latent))))


def outputs_of(side, model, inputs):
    """Outputs of a part, as a function of its raveled parameters; with log-variances for Gaussian data."""
    flat, unravel = ravel_pytree(side.part.get(model))

    def outputs(parameters):
        changed = side.part.put(model, unravel(parameters))
        if side.part == RECOGNITION:
            return recognition_outputs(changed, inputs)
        found = generation_outputs(changed, inputs)
        noise = jnp.broadcast_to(changed.log_variance, found.shape) if model.gaussian else found[:, :0]
        return jnp.concatenate([found, noise], axis=1)

    return flat, outputs


def oracle(side, model, inputs):
    """(1/n) sum_i J_i^T M_i J_i with M from the definition of every distribution, one row after the other."""
    flat, outputs = outputs_of(side, model, inputs)
    jacobian, found = map(np.asarray, jax.jit(lambda v: (jax.jacrev(outputs)(v), outputs(v)))(flat))
    total = np.zeros((flat.size, flat.size))
    for j, r in zip(jacobian, found, strict=True):
        if side.part == RECOGNITION or model.gaussian:
            curvature = np.concatenate([np.exp(-r[len(r) // 2 :]), np.full(len(r) // 2, 0.5)])
        else:
            chance = 1 / (1 + np.exp(-r))
            curvature = chance * (1 - chance)
        total += j.T @ np.diag(curvature) @ j
    return total / len(found)


@pytest.mark.parametrize(
    ("name", "gaussian"), [("recognition", False), ("prior", False), ("generation", True)]
)
@pytest.mark.few(1)
def test_products_equal_dense_matrices(name, gaussian):
    model, side = made(latent=2, hidden=(3,), gaussian=gaussian), SIDES[name]
    draws, key = drawn(model), generator.key(1)

    @jax.jit
    def found(model):
        operator, _ = fisher.exact_products(side, 4).measure(key, (), model, draws)
        few = LatentDraws(draws.rows[:4], draws.noise[:4])
        return dense(operator), side.inputs(key, model, few)

    matrix, inputs = found(model)
    assert inputs.shape == (4, model.latent if side.part == GENERATION else VISIBLE)
    np.testing.assert_allclose(matrix, oracle(side, model, inputs), atol=1e-10)


@pytest.mark.parametrize("name", ["recognition", "generation"])
@pytest.mark.few(1)
def test_unit_blocks_are_unbiased_blocks_of_the_fisher_and_exact_for_outputs(name):
    model, side = made(latent=2, hidden=(3,), gaussian=True), SIDES[name]
    draws, number = drawn(model), 2000

    def once(key):
        operator, _ = fisher.unit_blocks_of(side).measure(key, (), model, draws)
        return [block.dense() for block in operator.blocks[name]], operator.blocks.get("noise", ())

    layers, noise = jax.jit(lambda keys: jax.lax.map(once, keys))(jax.random.split(generator.key(2), number))
    whole = oracle(side, model, side.inputs(generator.key(0), model, draws))
    start = 0
    for last, (layer, found) in enumerate(zip(side.layers(model), layers, strict=True)):
        units, inputs = layer.weight.shape
        for unit in range(units):
            own = [*range(start + unit * inputs, start + (unit + 1) * inputs), start + units * inputs + unit]
            expected, mean = whole[np.ix_(own, own)], np.asarray(found[:, unit]).mean(axis=0)
            if last == 1:  # outputs
                np.testing.assert_allclose(found[0, unit], expected, atol=1e-10)
            else:
                error = np.asarray(found[:, unit]).std(axis=0) / np.sqrt(number)
                assert (np.abs(mean - expected) < 5 * error + 1e-12).all()
        start += layer.weight.size + units
    if name == "generation":
        np.testing.assert_allclose(noise[0], whole[-1, -1], atol=1e-10)
        np.testing.assert_allclose(whole[-1, :-1], 0, atol=1e-10)


def layer_blocks(side, model, whole):
    """The diagonal blocks of a matrix that belong to the layers of a network, the noise's own last."""
    sizes = [layer.weight.size + layer.bias.size for layer in side.layers(model)]
    owner = np.repeat(np.arange(len(sizes) + 1), [*sizes, len(whole) - sum(sizes)])
    return np.where(owner[:, None] == owner[None], whole, 0)


@pytest.mark.parametrize(
    ("name", "gaussian"), [("recognition", False), ("generation", False), ("generation", True)]
)
@pytest.mark.few(1)
def test_factors_of_one_row_are_unbiased_blocks_of_its_fisher(name, gaussian):
    """Of one row, A x G is no approximation; the outputs' own G is not drawn where they are independent."""
    model, side = made(latent=2, hidden=(3,), gaussian=gaussian), SIDES[name]
    draws, number = drawn(model), 3000
    metric = fisher.factors_of(side, rows=1)

    def once(key):
        return dense(metric.measure(key, metric.init(key, model, draws), model, draws)[0])

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the noise has no layer, and is as it should be
        found = np.asarray(
            jax.jit(lambda keys: jax.lax.map(once, keys))(jax.random.split(generator.key(2), number))
        )
    first = LatentDraws(draws.rows[:1], draws.noise[:1])
    expected = layer_blocks(side, model, oracle(side, model, side.inputs(generator.key(0), model, first)))
    error = found.std(axis=0) / np.sqrt(number)
    assert (np.abs(found.mean(axis=0) - expected) < 5 * error + 1e-9).all()
    last = side.layers(model)[-1]
    if not gaussian:
        own = slice(-last.weight.size - last.bias.size, None)
        np.testing.assert_allclose(found[0, own, own], expected[own, own], atol=1e-10)


@pytest.mark.slow  # averages of any network's blocks have a test of their own
def test_factors_are_averaged_over_the_times_they_are_measured():
    model, side = made(latent=2, hidden=(3,)), SIDES["generation"]
    draws, others = drawn(model), drawn(model, seed=1)
    metric, plain = fisher.factors_of(side, decay=0.75), fisher.factors_of(side)
    keys = jax.random.split(generator.key(1))
    carry = metric.init(keys[0], model, draws)
    once, carry = metric.measure(keys[0], carry, model, draws)
    twice, _ = metric.measure(keys[1], carry, model, others)
    fresh = [
        plain.measure(key, (), model, own)[0].blocks for key, own in zip(keys, (draws, others), strict=True)
    ]
    weights = np.array([0.75 * 0.25, 0.25]) / (1 - 0.75**2)
    for found, one, other in zip(*map(jax.tree.leaves, (twice.blocks, *fresh)), strict=True):
        np.testing.assert_allclose(found, weights[0] * one + weights[1] * other, atol=1e-12)
    for found, one in zip(*map(jax.tree.leaves, (once.blocks, fresh[0])), strict=True):
        np.testing.assert_allclose(found, one, atol=1e-12)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["recognition", "generation"])
def test_scored_rows_are_the_outer_products_of_scores(name):
    """Products, Gram matrix and diagonal of a draw equal those of explicit scores."""
    model, side = made(latent=2, hidden=(3,), gaussian=True), SIDES[name]
    draws = drawn(model)

    @jax.jit
    def found(key):
        operator, _ = fisher.sampled_scores(side).measure(key, (), model, draws)
        product = operator.bind()
        return dense(operator), product.gram(), operator.factor_rows(), operator.mean_diagonal(key)

    matrix, gram, rows, mean = map(np.asarray, found(generator.key(3)))
    key_targets = jax.random.split(generator.key(3))[1]

    @jax.jit
    def explicit(model):
        flat, outputs = outputs_of(side, model, side.inputs(key_targets, model, draws))
        plain = outputs(flat) if name == "recognition" else outputs(flat)[:, :VISIBLE]
        targets = side.output(model).sample(key_targets, plain)
        return jax.jacrev(lambda v: normal().log_prob(outputs(v), targets))(flat) / np.sqrt(ROWS)

    scores = np.asarray(explicit(model))
    np.testing.assert_allclose(rows, scores, atol=1e-10)
    np.testing.assert_allclose(gram, scores @ scores.T, atol=1e-10)
    np.testing.assert_allclose(matrix, scores.T @ scores, atol=1e-10)
    np.testing.assert_allclose(mean, np.trace(matrix) / len(matrix), atol=1e-12)


def test_the_metric_of_both_networks_has_their_fishers_and_blocks_between_them():
    model = made(latent=2, hidden=(3,))
    draws = drawn(model)
    matrix = jax.jit(lambda m: dense(fisher.products_of_both().measure(generator.key(0), (), m, draws)[0]))(
        model
    )
    flat, unravel = ravel_pytree(model)

    def logits(v):
        m = unravel(v)
        return generation_outputs(m, recognized(m, draws.rows).drawn(draws.noise[:, :1])[:, 0])

    jacobian, found = map(np.asarray, jax.jit(lambda v: (jax.jacrev(logits)(v), logits(v)))(flat))
    chance = 1 / (1 + np.exp(-found))
    seen = np.einsum("rop,ro,roq->pq", jacobian, chance * (1 - chance), jacobian) / ROWS
    above = ravel_pytree(model.recognition)[0].size
    seen[:above, :above] += oracle(SIDES["recognition"], model, draws.rows)
    np.testing.assert_allclose(matrix, seen, atol=1e-10)
    inputs = jax.jit(lambda m: recognized(m, draws.rows).drawn(draws.noise)[:, 0])(model)
    below = oracle(SIDES["generation"], model, inputs)
    np.testing.assert_allclose(matrix[above:, above:], below, atol=1e-10)
    assert np.abs(matrix[:above, above:]).max() > 1e-3


def exact_scores(model):
    """Scores of log p(x) of every state, and of log p(x, z) of every state and node, by brute force."""
    grid, weights = hermite(model.latent, 40)
    flat, unravel = ravel_pytree(model)
    latent = jnp.broadcast_to(jnp.asarray(grid), (len(states()), *grid.shape))
    pairs = lambda v: log_visible(unravel(v), states(), latent)  # noqa: E731
    seen = lambda v: jax.nn.logsumexp(pairs(v) + jnp.log(weights), axis=1)  # noqa: E731
    found = jax.jit(lambda v: (jax.jacrev(seen)(v), jax.jacrev(pairs)(v), jnp.exp(pairs(v)) * weights))
    return map(np.asarray, found(flat))


def test_the_marginal_fisher_has_no_part_of_recognition_and_is_below_that_of_the_joint_model():
    """Which is the mean over the prior of generation's own."""
    model = made(latent=1, hidden=(2,))
    marginal, joint = (np.asarray(jax.jit(f)(model)) for f in (marginal_fisher, joint_fisher))
    of_x, of_pairs, chances = exact_scores(model)
    np.testing.assert_allclose(marginal, (of_x.T * chances.sum(axis=1)) @ of_x, atol=1e-10)
    np.testing.assert_allclose(joint, np.einsum("xnp,xn,xnq->pq", of_pairs, chances, of_pairs), atol=1e-10)
    above = ravel_pytree(model.recognition)[0].size
    np.testing.assert_array_equal(marginal[:above], 0)
    np.testing.assert_array_equal(joint[:above], 0)
    difference = np.linalg.eigvalsh(joint - marginal)
    assert difference.min() > -1e-12
    assert difference.max() > 1e-3
    grid, weights = hermite(1, 40)
    flat, outputs = outputs_of(SIDES["prior"], model, jnp.asarray(grid))
    jacobian, found = map(np.asarray, jax.jit(lambda v: (jax.jacrev(outputs)(v), outputs(v)))(flat))
    curvature = np.exp(found) / (1 + np.exp(found)) ** 2
    expected = np.einsum("n,nop,no,noq->pq", weights, jacobian, curvature, jacobian)
    np.testing.assert_allclose(joint[above:, above:], expected, atol=1e-10)
