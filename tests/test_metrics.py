"""The blocks against the full Fisher by enumeration."""

import itertools
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
from cases import CODINGS, machine
from natgrad.layers import bernoulli
from natgrad.metrics.blocks import DenseBlocks, UnitBlocks, join, split
from natgrad.metrics.layered import averaged
from natgrad.models.helmholtz import fisher
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.machine import Pass
from natgrad.models.helmholtz.phases import Phases, normalized, reweighted

SIZES = {"two": (3, 2, 2), "three": (2, 2, 2, 1)}


@jax.jit
def dense(blocks):
    return blocks.dense()


@jax.jit
def judged(model, values):
    """A pass of these values with the logits of both networks, log p(x, h) and log q(h | x)."""
    generation = (
        *(bernoulli.logits(layer, value) for layer, value in zip(model.generation, values[1:], strict=True)),
        model.prior[:, None, None],
    )
    recognition = tuple(
        bernoulli.logits(layer, value) for layer, value in zip(model.recognition, values[:-1], strict=True)
    )
    drawn = Pass(values, generation, recognition)
    return drawn, helmholtz.log_joint(model, drawn), helmholtz.log_recognition(model, drawn)


def enumerated(model):
    """A pass over *all* states of the machine as its samples, and their probabilities under p and q."""
    states = np.array(
        [[int(bit) for bit in np.binary_repr(n, sum(model.sizes))] for n in range(2 ** sum(model.sizes))]
    )
    edges = np.cumsum([0, *model.sizes])
    on = [states[:, a:b].T[:, :, None] for a, b in itertools.pairwise(edges)]
    drawn, joint, recognition = judged(model, tuple(model.coding.value(part, np.float64) for part in on))
    return drawn, np.exp(np.asarray(joint)), np.exp(np.asarray(recognition))


@partial(jax.jit, static_argnums=3)
def exact_blocks(model, drawn, weights, network):
    """The library's blocks when every state is a row of its exact weight."""
    phases = Phases(drawn, jnp.asarray(weights), drawn)
    if network == "generation":
        return fisher._blocks(drawn.values[1:], drawn.generation[:-1], phases.weights, None)
    return fisher._blocks(drawn.values[:-1], drawn.recognition, phases.weights, None)


def full_fisher(m, weights, score):
    """E[score score^T] over all states, a dense matrix over all parameters of a network."""
    total = 0.0
    size = sum(m["sizes"])
    for number, weight in enumerate(np.ravel(weights)):
        bits = np.array([int(bit) for bit in np.binary_repr(number, size)], float)
        edges = np.cumsum([0, *m["sizes"]])
        layers = [bits[a:b] for a, b in itertools.pairwise(edges)]
        vector = score(layers)
        total = total + weight * np.outer(vector, vector)
    return total


def assemble(blocks):
    """Blocks of several layers on the diagonal of one matrix; per unit: weights, then bias."""
    pieces = [np.asarray(block) for layer in blocks for block in dense(layer)]
    size = sum(len(piece) for piece in pieces)
    out, at = np.zeros((size, size)), 0
    for piece in pieces:
        out[at : at + len(piece), at : at + len(piece)] = piece
        at += len(piece)
    return out


def per_unit_vector(parts):
    """Scores ordered unit by unit, weights then bias."""
    return np.concatenate([np.column_stack([weight, bias]).ravel() for weight, bias in parts])


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.few(1)
def test_generation_blocks_are_the_full_fisher(coding, sizes):
    """The Fisher of log p(x, h) by enumeration has exactly these blocks and zeros elsewhere."""
    model = machine(SIZES[sizes], CODINGS[coding])
    m = oracles.numpy_model(model)
    drawn, weights, _ = enumerated(model)
    full = full_fisher(
        m,
        weights,
        lambda layers: np.concatenate(
            [oracles.generation_score(m, layers)[0], per_unit_vector(oracles.generation_score(m, layers)[1])]
        ),
    )
    top = len(m["prior"])
    expected = np.zeros_like(full)
    expected[:top, :top] = np.diag(np.asarray(fisher.curvature(model.prior)))
    expected[top:, top:] = assemble(exact_blocks(model, drawn, weights, "generation"))
    np.testing.assert_allclose(full, expected, atol=1e-10)


@pytest.mark.few(2)
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("sizes", SIZES)
def test_recognition_blocks_are_the_full_fisher(coding, sizes):
    """The same for q(h | x) p_data(x), with a made-up data distribution."""
    model = machine(SIZES[sizes], CODINGS[coding])
    m = oracles.numpy_model(model)
    drawn, _, chances = enumerated(model)
    distribution = np.random.default_rng(0).dirichlet(np.ones(2 ** model.sizes[0]))
    hidden = 2 ** sum(model.sizes[1:])
    weights = chances * np.repeat(distribution, hidden)[:, None]
    assert weights.sum() == pytest.approx(1)
    full = full_fisher(m, weights, lambda layers: per_unit_vector(oracles.recognition_score(m, layers)))
    np.testing.assert_allclose(full, assemble(exact_blocks(model, drawn, weights, "recognition")), atol=1e-10)


@cache
def sampled(coding="signed", sizes=(4, 3, 2), samples=6, rows=5):
    model = machine(sizes, CODINGS[coding])
    on = jax.random.bernoulli(jax.random.key(3), 0.5, (model.sizes[0], rows))
    batch = model.coding.value(on, jnp.float64)
    estimate, _ = jax.jit(reweighted(samples).estimate)(jax.random.key(4), (), model, batch)
    return model, estimate.samples


def blocks_of(metric, model, drawn, key=0):
    """The blocks of every layer that a metric finds."""
    found, _ = jax.jit(metric.measure)(jax.random.key(key), (), model, drawn)
    return found.blocks["generation" if "generation" in found.blocks else "recognition"]


def loop_block(inputs, logits, weights, layer, unit):
    """Eq. 25: one row after the other."""
    total = 0.0
    for r in range(weights.shape[0]):
        for s in range(weights.shape[1]):
            pick = lambda a: np.asarray(a)[:, r, min(s, a.shape[2] - 1)]  # noqa: B023, E731
            p = oracles.sigmoid(pick(logits[layer])[unit])
            u = np.append(pick(inputs[layer]), 1.0)
            total = total + weights[r, s] * p * (1 - p) * np.outer(u, u)
    return total


SOURCES = {
    "dreams p": (fisher.generation_from_dreams, "dreams", "generation", "even"),
    "wake p": (fisher.generation_from_wake, "wake", "generation", "weighted"),
    "wake q": (fisher.recognition_from_wake, "wake", "recognition", "even"),
    "dreams q": (fisher.recognition_from_dreams, "dreams", "recognition", "even"),
}


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.few(2)
def test_sources_equal_loops(coding, source):
    make, which, network, kind = SOURCES[source]
    model, drawn = sampled(coding)
    found = blocks_of(make(), model, drawn)
    passed = getattr(drawn, which)
    w = np.asarray(drawn.weights)
    weights = {"even": np.full_like(w, 1 / w.size), "weighted": w / len(w)}[kind]
    inputs = passed.values[1:] if network == "generation" else passed.values[:-1]
    logits = getattr(passed, network)
    assert len(found) == 2
    for layer, blocks in enumerate(found):
        for unit, block in enumerate(np.asarray(dense(blocks))):
            np.testing.assert_allclose(block, loop_block(inputs, logits, weights, layer, unit), atol=1e-12)


@pytest.mark.few(2)
@pytest.mark.parametrize("source", SOURCES)
def test_values_suffice(source):
    """A metric that computes its logits again finds the same, whatever logits it is given."""
    model, drawn = sampled()
    spoiled = drawn._replace(
        wake=drawn.wake._replace(generation=(), recognition=()),
        dreams=drawn.dreams._replace(generation=(), recognition=()),
    )
    metric = SOURCES[source][0]()
    again = blocks_of(fisher.from_values(metric), model, spoiled)
    for one, two in zip(again, blocks_of(metric, model, drawn), strict=True):
        np.testing.assert_allclose(dense(one), dense(two), atol=1e-14)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("limit", [None, 10, 11, 1])
@pytest.mark.few(2)
def test_mixed_rows_are_the_mean_of_wake_and_dreams(coding, limit):
    """Half of the rows are of each phase, and each has half of the weight: block by block, in float64."""
    model, drawn = sampled(coding)
    half = limit if limit is None else max(1, limit // 2)
    found = blocks_of(fisher.recognition_mixed(limit), model, drawn)
    parts = [
        blocks_of(make(half), model, drawn)
        for make in (fisher.recognition_from_wake, fisher.recognition_from_dreams)
    ]
    for mixed, wake, dreams in zip(found, *parts, strict=True):
        np.testing.assert_allclose(dense(mixed), (dense(wake) + dense(dreams)) / 2, atol=1e-12)
        assert mixed.inputs.shape[1] == wake.inputs.shape[1] + dreams.inputs.shape[1]
        if limit is not None:
            assert wake.inputs.shape[1] == dreams.inputs.shape[1] == half


def test_all_mixed_rows_equal_loops():
    model, drawn = sampled()
    weights = np.full(drawn.weights.shape, 0.5 / drawn.weights.size)
    for layer, blocks in enumerate(blocks_of(fisher.recognition_mixed(), model, drawn)):
        for unit, block in enumerate(np.asarray(dense(blocks))):
            expected = sum(
                loop_block(part.values[:-1], part.recognition, weights, layer, unit)
                for part in (drawn.wake, drawn.dreams)
            )
            np.testing.assert_allclose(block, expected, atol=1e-12)


def test_first_recognition_layer_has_one_row_per_datum():
    model, drawn = sampled()
    assert blocks_of(fisher.recognition_from_wake(), model, drawn)[0].inputs.shape == (4, 5)


def test_limit_keeps_the_total_weight():
    model, drawn = sampled()
    for make in (fisher.recognition_from_dreams, fisher.recognition_from_wake, fisher.generation_from_dreams):
        for full, part in zip(blocks_of(make(), model, drawn), blocks_of(make(4), model, drawn), strict=True):
            assert part.inputs.shape[1] == min(4, full.inputs.shape[1])
    weighted = blocks_of(fisher.recognition_from_dreams(13), model, drawn)
    assert weighted[0].curvature.shape[1] == 10  # two samples of each of the five rows
    probabilities = oracles.sigmoid(np.asarray(drawn.dreams.recognition[0])[:, :, :2].reshape(3, -1))
    np.testing.assert_allclose(weighted[0].curvature, probabilities * (1 - probabilities) / 10, atol=1e-12)


@jax.jit
def contract(operator, vector):
    found = {"mv": operator.mv(vector), "diagonal": operator.diagonal()}
    return found | {"trace": operator.trace(), "leading": operator.leading()}


@pytest.mark.parametrize("kind", ["rows", "dense"])
def test_operator_contract(kind):
    """mv, dense, diagonal and trace speak of the same symmetric positive semi-definite matrices."""
    model, drawn = sampled()
    for blocks in blocks_of(fisher.recognition_from_dreams(), model, drawn):
        operator = blocks if kind == "rows" else DenseBlocks(dense(blocks))
        matrices = np.asarray(dense(blocks))
        vector = split(jax.random.normal(jax.random.key(0), matrices.shape[:2]))
        told = contract(operator, vector)
        expected = np.einsum("jik,jk->ji", matrices, join(vector))
        np.testing.assert_allclose(join(told["mv"]), expected, atol=1e-12)
        np.testing.assert_allclose(
            join(told["diagonal"]), np.diagonal(matrices, axis1=1, axis2=2), atol=1e-12
        )
        np.testing.assert_allclose(told["trace"], np.trace(matrices, axis1=1, axis2=2), atol=1e-12)
        assert np.linalg.eigvalsh(matrices).min() > -1e-12
        assert operator.size == matrices.shape[-1]
        mean = matrices[..., -1]
        quotient = np.einsum("ji,jik,jk->j", mean, matrices, mean) / (mean**2).sum(axis=1)
        np.testing.assert_allclose(told["leading"], quotient, rtol=1e-10)


def test_signed_diagonal_is_the_same_for_all_weights_of_a_unit():
    """So that the diagonal method only rescales the step of every unit."""
    model, drawn = sampled("signed")
    for blocks in blocks_of(fisher.generation_from_dreams(), model, drawn):
        found = np.asarray(join(blocks.diagonal()))
        np.testing.assert_allclose(found, np.broadcast_to(found[:, :1], found.shape))


def test_averaged_metric_is_the_exponential_average():
    model, drawn = sampled()
    metric, key = fisher.generation_from_dreams(), jax.random.key(0)
    mean = averaged(metric, 0.75)
    carry = jax.jit(mean.init)(key, model, drawn)
    dream = jax.jit(helmholtz.dream, static_argnums=(2, 3))
    other = drawn._replace(dreams=dream(jax.random.key(9), model, 5, 6))
    measure = jax.jit(mean.measure)
    one, carry = measure(key, carry, model, drawn)
    two, _ = measure(key, carry, model, other)
    first, second = (np.asarray(dense(blocks_of(metric, model, each)[0])) for each in (drawn, other))
    np.testing.assert_allclose(one.blocks["generation"][0].matrix, first, atol=1e-12)
    np.testing.assert_allclose(two.blocks["generation"][0].matrix, 0.75 * first + 0.25 * second, atol=1e-12)
    np.testing.assert_allclose(two.blocks["prior"], fisher.curvature(model.prior), atol=1e-12)


def test_dream_fisher_is_unbiased():
    """The mean of the dream estimate is the exact block."""
    model = machine((3, 2, 2))
    drawn, weights, _ = enumerated(model)
    exact = exact_blocks(model, drawn, weights, "generation")

    def estimate(key):
        dreams = helmholtz.dream(key, model, 4, 2)
        phases = Phases(dreams, jnp.full((4, 2), 0.5), dreams)
        return tuple(b.dense() for b in blocks_of(fisher.generation_from_dreams(), model, phases))

    found = jax.jit(jax.vmap(estimate))(jax.random.split(jax.random.key(0), 3000))
    for many, block in zip(found, exact, strict=True):
        many = np.asarray(many)
        error = many.std(axis=0) / np.sqrt(3000)
        assert (np.abs(many.mean(axis=0) - dense(block)) <= 5 * error + 1e-12).all()


def test_fisher_mv_covers_the_whole_network():
    """The prior by its diagonal, every layer by its blocks; the other network is not its concern."""
    model, drawn = sampled()
    for metric, part in (
        (fisher.generation_from_dreams(), fisher.GENERATION),
        (fisher.recognition_from_dreams(), fisher.RECOGNITION),
    ):
        found, _ = jax.jit(metric.measure)(jax.random.key(0), (), model, drawn)
        image = jax.jit(lambda found, own: found.mv(own))(found, part.get(model))
        assert jax.tree.structure(image) == jax.tree.structure(part.get(model))
        (name,) = {"generation", "recognition"} & set(image)
        for number, layer in enumerate(getattr(model, name)):
            expected = join(jax.jit(lambda blocks, own: blocks.mv(own))(found.blocks[name][number], layer))
            np.testing.assert_allclose(join(image[name][number]), expected, atol=1e-14)
        if name == "generation":
            np.testing.assert_allclose(image["prior"], fisher.curvature(model.prior) * model.prior)


def test_weights_of_a_fisher_sum_to_one():
    model, drawn = sampled()
    np.testing.assert_allclose(normalized(jax.jit(helmholtz.log_weights)(model, drawn.wake)).sum(axis=1), 1)
    inputs, ones = jnp.ones((1, 3)), jnp.full((2, 3), 1 / 3)
    assert float(UnitBlocks(inputs, ones).trace()[0]) == pytest.approx(2.0)
