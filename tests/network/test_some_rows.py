"""Least squares by some of the rows: what is drawn, whose gradient it is, and which loss decides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from residual_cases import BATCH, WEIGHTS, parameters, residuals

import natgrad
from natgrad.errors import InputError
from natgrad.fitting import methods
from natgrad.metrics.probing import dense
from natgrad.metrics.residuals import squares
from natgrad.metrics.some_rows import drawn_rows, half_square_by_some, metric_by_some

PROBLEM = squares(residuals, WEIGHTS, by_row=True)


def half_square_by_hand(p, batch):
    """(1/2) sum_k weight_k mean(r_k^2)."""
    found = residuals(p, batch)
    return sum(0.5 * WEIGHTS[name] * (found[name] ** 2).mean() for name in found)


@pytest.mark.parametrize(("number", "sizes"), [(6, (4, 2)), (1, (1, 1)), (11, (7, 4)), (100, (7, 4))])
def test_every_part_gives_the_same_share_of_its_rows_and_none_twice(number, sizes):
    drawn = drawn_rows(jax.random.key(0), residuals, parameters(), BATCH, number)
    for name, size in zip(("inside", "edge"), sizes, strict=True):
        chosen = {tuple(row) for row in np.asarray(drawn[name])}
        assert len(chosen) == len(drawn[name]) == size
        assert chosen <= {tuple(row) for row in np.asarray(BATCH[name])}


def test_steps_draw_other_rows():
    first, second = (
        drawn_rows(jax.random.key(seed), residuals, parameters(), BATCH, 6)["inside"] for seed in (0, 1)
    )
    assert not np.array_equal(first, second)


def test_the_gradient_and_the_metric_are_of_the_rows_drawn_and_the_loss_of_all():
    objective, metric = half_square_by_some(PROBLEM, residuals, 6), metric_by_some(PROBLEM)

    @jax.jit
    def everything(p):
        estimate, _ = objective.estimate(jax.random.key(3), (), p, BATCH)
        drawn = drawn_rows(jax.random.key(3), residuals, p, BATCH, 6)
        operator, _ = metric.measure(jax.random.key(0), (), p, estimate.samples)
        flat, unravel = ravel_pytree(p)
        rho = lambda q: PROBLEM.stacked(unravel(q), drawn)  # noqa: E731
        j = jax.jacrev(rho)(flat)
        moved = jax.tree.map(lambda leaf: 1.1 * leaf, p)
        return [
            (estimate.value, half_square_by_hand(p, BATCH)),
            (ravel_pytree(estimate.gradient)[0], ravel_pytree(jax.grad(half_square_by_hand)(p, drawn))[0]),
            (dense(operator), j.T @ j),
            (objective.revalue(moved, estimate.samples), half_square_by_hand(moved, BATCH)),
        ]

    for found, expected in everything(parameters()):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_the_mean_gradient_is_that_of_all_rows():
    objective = half_square_by_some(PROBLEM, residuals, 6)
    one = lambda key: ravel_pytree(objective.estimate(key, (), parameters(), BATCH)[0].gradient)[0]  # noqa: E731
    drawn = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), 2000)))
    expected = ravel_pytree(jax.jit(jax.grad(half_square_by_hand))(parameters(), BATCH))[0]
    z = (drawn.mean(axis=0) - expected) / (drawn.std(axis=0, ddof=1) / np.sqrt(len(drawn)))
    assert np.abs(z).max() < 5


def test_the_loss_of_all_rows_never_rises_and_falls_far():
    start = jax.tree.map(lambda leaf: 3 * leaf, parameters())
    method = methods.spring(1e-2, rows=6)
    found = natgrad.least_squares(residuals, start, BATCH, weights=WEIGHTS, method=method, steps=200)
    losses = [*found.history["loss"], found.loss]
    assert (np.diff(losses) <= 0).all()
    assert found.loss < 0.2 * losses[0]
    np.testing.assert_allclose(losses[0], half_square_by_hand(start, BATCH), rtol=1e-12)


def test_a_mistake_is_one_sentence():
    with pytest.raises(InputError, match="rows: expected at least 1, got 0"):
        methods.spring(rows=0)
    with pytest.raises(InputError, match="need rows that depend on their own part of a batch only"):
        natgrad.least_squares(
            lambda p, x: p - x, jnp.ones(3), jnp.ones(3), method=methods.spring(rows=2), by_row=False
        )
