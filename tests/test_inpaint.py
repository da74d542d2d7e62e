"""Completions and posteriors, held to enumeration: the law of hidden pixels must be p(x_hidden | x_known)."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import oracles
from cases import CODINGS
from natgrad import generator
from natgrad.errors import InputError
from natgrad.evaluate import inpaint
from natgrad.evaluate.inpaint import Chain
from natgrad.trained import Trained

ROW = np.array([1, 0, 0, 1])
HIDE = np.array([True, False, True, False])
CHAINS = 10_000


@cache
def trained(coding="signed"):
    return Trained(cases.machine((4, 3, 2), CODINGS[coding], spread=0.8))


def joint_law(model):
    """Every (x_hidden, h) with its probability given the known pixels, by enumeration."""
    m = oracles.numpy_model(model)
    states, logs = [], []
    for pixels in oracles.all_states(int(HIDE.sum())):
        x = ROW.astype(float)
        x[HIDE] = pixels
        for hidden in oracles.hidden_states(m):
            states.append((x, *hidden))
            logs.append(oracles.log_joint(m, [x, *hidden]))
    return states, np.exp(np.array(logs) - np.logaddexp.reduce(logs))


def codes(*layers):
    """Each column of {0,1} layers as one number."""
    bits = np.concatenate([np.asarray(layer) for layer in layers]).round().astype(int)
    return (bits * 2 ** np.arange(len(bits))[:, None]).sum(axis=0)


def z_scores(drawn, names, law):
    """How far the frequency of every state is from its probability, in standard errors."""
    counts = np.array([(drawn == name).sum() for name in names])
    assert counts.sum() == len(drawn)
    return (counts - len(drawn) * law) / np.sqrt(len(drawn) * law * (1 - law))


@pytest.mark.parametrize("coding", CODINGS)
def test_completed_pixels_have_the_conditional_law(coding):
    model = trained(coding)
    done = model.inpaint(np.tile(ROW, (CHAINS // 10, 1)), HIDE, number=10, steps=60, samples=2, seed=1)
    assert done.samples.shape == done.means.shape == (CHAINS // 10, 10, 4)
    flat = done.samples.reshape(-1, 4)
    assert (flat[:, ~HIDE] == ROW[~HIDE]).all()
    states, law = joint_law(model.parameters)
    names = codes(np.array([x for x, *_ in states]).T)
    marginal = {name: law[names == name].sum() for name in np.unique(names)}
    z = z_scores(codes(flat.T), list(marginal), np.array(list(marginal.values())))
    assert np.abs(z).max() < 5
    assert 0.1 < done.moved.mean() < 0.5  # sixty steps forget the start


@pytest.mark.parametrize("samples", [1, 3])
def test_a_step_leaves_the_conditional_law_as_it_is(samples):
    """From exact draws of (x_hidden, h) given x_known, one step leads to exact draws again."""
    model = trained().parameters
    states, law = joint_law(model)
    start = np.random.default_rng(0).choice(len(states), CHAINS, p=law)
    coded = [np.array([state[i] for state in states])[start].T * 2 - 1 for i in range(3)]
    hidden = tuple(jnp.asarray(layer)[:, None, :] for layer in coded[1:])
    nothing = jnp.zeros(CHAINS, jnp.int32)
    chain = Chain(jnp.asarray(coded[0]), hidden, jnp.zeros((4, CHAINS)), nothing)
    hide = jnp.asarray(np.tile(HIDE[:, None], CHAINS))
    after = jax.jit(lambda key: inpaint.advance(key, model, chain, hide, samples=samples))(generator.key(7))
    assert 0 < int(after.moves.sum()) < CHAINS
    on = [model.coding.on(after.visible), *(model.coding.on(layer[:, 0]) for layer in after.hidden)]
    names = codes(*(np.array([state[i] for state in states]).T for i in range(3)))
    seen = law > 1e-3  # rarer states hold too few draws for a z-score
    drawn = codes(*on)
    z = z_scores(drawn[np.isin(drawn, names[seen])], names[seen], law[seen] / law[seen].sum())
    assert np.abs(z).max() < 5


def test_chains_start_from_dreams_that_explain_the_known_pixels():
    """With many dreams the start alone is near the law; it is exact in the limit."""
    model = trained().parameters
    visible = jnp.asarray(np.tile(ROW * 2.0 - 1, (2000, 1)).T)
    hide = jnp.asarray(np.tile(HIDE[:, None], 2000))
    chain = jax.jit(lambda key: inpaint.start(key, model, visible, hide, 2000))(generator.key(3))
    states, law = joint_law(model)
    expected = law @ np.array([x for x, *_ in states])
    got = np.asarray(model.coding.on(chain.visible)).mean(axis=1)
    np.testing.assert_allclose(got, expected, atol=0.06)
    assert np.abs(expected - trained().sample(2000).mean(axis=0))[HIDE].max() > 0.1  # not the prior's


def test_seeds_and_portions_decide_completions():
    rows = np.tile(ROW, (3, 1))
    one, same, other = (trained().inpaint(rows, HIDE, number=2, seed=seed) for seed in (1, 1, 2))
    assert (one.samples == same.samples).all()
    assert (one.means != other.means).any()
    each = np.stack([HIDE, ~HIDE, HIDE])
    done = trained().inpaint(rows, each, steps=1)
    assert (done.samples[:, 0][~each] == rows[~each]).all()
    assert (done.means[:, 0][~each] == rows[~each]).all()
    assert ((done.means > 0) & (done.means < 1))[:, 0][each].all()


@pytest.mark.parametrize("coding", CODINGS)
def test_reconstructions_agree_with_enumeration(coding):
    model = trained(coding)
    m = oracles.numpy_model(model.parameters)
    rows = np.array([[0, 1, 1, 0], [1, 1, 0, 1], [0, 0, 0, 1]])
    got = model.reconstruct(rows, samples=100_000)
    likelihood = model.inferred(rows, samples=100_000).log_likelihood
    weight, bias = m["generation"][0]
    for row, mean, log_p in zip(rows, got, likelihood, strict=True):
        joint = [(h, np.exp(oracles.log_joint(m, [row, *h]))) for h in oracles.hidden_states(m)]
        total = sum(p for _, p in joint)
        expected = sum(p * oracles.sigmoid(weight @ oracles.code(m, h[0]) + bias) for h, p in joint) / total
        np.testing.assert_allclose(mean, expected, atol=0.01)
        np.testing.assert_allclose(log_p, np.log(total), atol=0.03)


def test_what_is_said_of_a_row_does_not_depend_on_its_neighbours():
    rows = trained().sample(300, seed=5)  # more than one portion
    together = trained().posterior(rows, samples=20)[0]
    for order in (slice(7, 8), slice(None, None, -1)):
        alone = trained().posterior(rows[order], samples=20)[0]
        np.testing.assert_allclose(alone, together[order], atol=1e-13)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"number": 0}, "number: expected at least 1, got 0"),
        ({"steps": 0}, "steps: expected at least 1, got 0"),
        ({"samples": -1}, "samples: expected at least 1, got -1"),
        (
            {"rows": ROW[None] * 0.5},
            "expected rows of 0 and 1 to complete, got values in between; round them",
        ),
        ({"rows": ROW}, r"expected at least one row of 4 values, got an array of shape \(4,\)"),
        (
            {"mask": HIDE[:3]},
            r"expected a mask of 4 values, true where a pixel is hidden, got shape \(3,\) of bool",
        ),
        ({"mask": HIDE * 0.5}, r"got shape \(4,\) of float64; give one mask for all rows or one for each"),
        ({"mask": HIDE & False}, "expected a mask that hides at least one pixel, got none"),
    ],
)
def test_questions_that_cannot_be_answered_are_said(settings, match):
    given = {"rows": ROW[None], "mask": HIDE} | settings
    with pytest.raises(InputError, match=match):
        trained().inpaint(given.pop("rows"), given.pop("mask"), **given)
