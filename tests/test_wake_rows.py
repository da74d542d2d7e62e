"""Generation's Fisher from some of the wake samples: drawn by their weights, equally many of every datum."""

from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cases import CODINGS, machine
from natgrad.models.helmholtz import fisher
from natgrad.models.helmholtz.phases import reweighted
from test_metrics import blocks_of, dense, loop_block

SAMPLES, DATA, TIMES = 6, 5, 2000


@cache
def drawn(coding="signed", spread=1.5):
    """The draws of a step whose weights are far from even."""
    model = machine((4, 3, 2), CODINGS[coding], spread=spread)
    on = jax.random.bernoulli(jax.random.key(3), 0.5, (4, DATA))
    estimate, _ = jax.jit(reweighted(SAMPLES).estimate)(
        jax.random.key(4), (), model, model.coding.value(on, jnp.float64)
    )
    return model, estimate.samples


def late(weights):
    """All the weight of every other datum on its last sample, the rest even."""
    last = np.zeros(weights.shape)
    last[:, -1] = 1.0
    even = np.full(weights.shape, 1 / SAMPLES)
    return jnp.asarray(np.where((np.arange(DATA) % 2 == 0)[:, None], last, even))


CASES = [(14, "own"), (10, "late")]
REST = [case for case in product((5, 10, 14, 29), ("own", "late")) if case not in CASES]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("limit", "weighing"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)]
)
def test_the_mean_over_draws_is_the_fisher_of_all_weighted_rows(limit, weighing):
    """In float64, |z| < 5 of every entry of every block, over two thousand draws."""
    model, phases = drawn()
    if weighing == "late":
        phases = phases._replace(weights=late(phases.weights))

    def estimate(key):
        found, _ = fisher.generation_from_wake(limit).measure(key, (), model, phases)
        return tuple(blocks.dense() for blocks in found.blocks["generation"])

    many = jax.jit(jax.vmap(estimate))(jax.random.split(jax.random.key(0), TIMES))
    whole = blocks_of(fisher.generation_from_wake(), model, phases)
    for found, exact in zip(many, whole, strict=True):
        found = np.asarray(found)
        error = found.std(axis=0, ddof=1) / np.sqrt(TIMES)
        gap = np.abs(found.mean(axis=0) - np.asarray(dense(exact)))
        assert (gap <= 5 * error + 1e-12).all()


@pytest.mark.parametrize("coding", CODINGS)
def test_all_rows_are_taken_with_their_weights(coding):
    """Where the limit allows it, nothing is drawn."""
    model, phases = drawn(coding)
    weights = np.asarray(phases.weights) / DATA
    for limit in (SAMPLES * DATA, None):
        for layer, blocks in enumerate(blocks_of(fisher.generation_from_wake(limit), model, phases)):
            for unit, block in enumerate(np.asarray(dense(blocks))):
                expected = loop_block(phases.wake.values[1:], phases.wake.generation, weights, layer, unit)
                np.testing.assert_allclose(block, expected, atol=1e-12)


@pytest.mark.parametrize(("limit", "kept", "data"), [(3, 1, 3), (5, 1, 5), (9, 1, 5), (12, 2, 5), (29, 5, 5)])
@pytest.mark.few(2)
def test_every_datum_keeps_equally_many_rows(limit, kept, data):
    model, phases = drawn()
    choose = jax.jit(fisher.resampled, static_argnums=2)
    chosen = np.asarray(choose(jax.random.key(1), phases.weights, limit))
    assert chosen.shape == (data, kept)
    assert ((chosen >= 0) & (chosen < SAMPLES)).all()
    for blocks in blocks_of(fisher.generation_from_wake(limit), model, phases, key=1):
        assert blocks.inputs.shape[1] == blocks.curvature.shape[1] == kept * data <= limit


@pytest.mark.parametrize("kept", [1, 2, 4])
def test_a_sample_is_kept_as_often_as_its_weight_says_up_to_one(kept):
    """Systematic: floor or ceiling of kept times the weight, at every draw; on average exactly that."""
    _, phases = drawn()
    expected = kept * np.asarray(phases.weights)
    draw = jax.jit(jax.vmap(lambda key: fisher.resampled(key, phases.weights, kept * DATA)))
    chosen = np.asarray(draw(jax.random.split(jax.random.key(2), TIMES)))
    counts = (chosen[..., None] == np.arange(SAMPLES)).sum(axis=2)
    assert (counts >= np.floor(expected - 1e-9)).all()
    assert (counts <= np.ceil(expected + 1e-9)).all()
    share = expected % 1
    error = np.sqrt(share * (1 - share) / TIMES)
    assert (np.abs(counts.mean(axis=0) - expected) <= 5 * error + 1e-9).all()


@pytest.mark.parametrize("limit", [5, 10, 20])
def test_data_whose_weight_is_on_later_samples_do_not_drop_out(limit):
    """Every other datum has all its weight on its last sample: its rows are copies of that one."""
    model, phases = drawn()
    phases = phases._replace(weights=late(phases.weights))
    blocks = blocks_of(fisher.generation_from_wake(limit), model, phases)
    kept = limit // DATA
    for layer, found in enumerate(blocks):
        inputs = np.asarray(found.inputs).reshape(-1, DATA, kept)
        curvature = np.asarray(found.curvature).reshape(-1, DATA, kept)
        chance = np.asarray(jax.nn.sigmoid(phases.wake.generation[layer]))
        for datum in range(0, DATA, 2):
            last = np.asarray(phases.wake.values[layer + 1])[:, datum, -1]
            np.testing.assert_array_equal(inputs[:, datum], np.repeat(last[:, None], kept, axis=1))
            expected = (chance * (1 - chance))[:, datum, -1] / (kept * DATA)
            np.testing.assert_allclose(
                curvature[:, datum], np.repeat(expected[:, None], kept, axis=1), rtol=1e-12
            )
