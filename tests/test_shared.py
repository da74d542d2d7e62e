"""The solver with one basis for all units of a layer: what it keeps, and what it leaves out."""

import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.metrics.blocks import DenseBlocks, UnitBlocks, join
from natgrad.solvers.shared import shared
from test_solvers import SHAPES, dense_solve, problem, run

pytestmark = pytest.mark.timeout(120)  # LAPACK calls side by side could wait forever


def in_shared_basis(blocks, gradient, damping, rank):
    """The definition, with dense matrices: diagonal in the mean block's leading vectors, even beyond them."""
    dense = np.asarray(blocks.dense(), np.float64)
    values, vectors = np.linalg.eigh(dense.mean(axis=0))
    basis = vectors[:, values > 1e-9 * values[-1]][:, -rank:]
    found = []
    for block, right in zip(dense, np.asarray(join(gradient), np.float64), strict=True):
        lengths = np.diagonal(basis.T @ block @ basis)
        rest = np.trace(block) - lengths.sum()
        even = max(rest, 0) / max(len(block) - len(lengths), 1) * (np.eye(len(block)) - basis @ basis.T)
        model = basis @ np.diag(lengths) @ basis.T + even
        found.append(np.linalg.solve(model + damping * np.eye(len(model)), right))
    return np.stack(found)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rank", [1, 4, 32])
@pytest.mark.few(3)
def test_equals_its_definition(shape, rank):
    blocks, gradient = problem(**SHAPES[shape])
    found = join(run(shared(rank), blocks, gradient, 0.2).value)
    np.testing.assert_allclose(found, in_shared_basis(blocks, gradient, 0.2, rank), atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_exact_where_units_differ_by_a_factor_only(shape):
    blocks, gradient = problem(**SHAPES[shape])
    alike = UnitBlocks(blocks.inputs, jnp.arange(1.0, 5.0)[:, None] * blocks.curvature[:1])
    found = join(run(shared(), alike, gradient, 0.1).value)
    np.testing.assert_allclose(found, dense_solve(alike, gradient, 0.1), atol=1e-9)


def test_close_in_float32():
    blocks, gradient = problem(rows=6)
    narrow, small = problem(rows=6, dtype=jnp.float32)
    wide = np.asarray(join(run(shared(), blocks, gradient, 0.05).value))
    found = np.asarray(join(run(shared(), narrow, small, 0.05).value))
    assert found.dtype == np.float32
    assert np.linalg.norm(found - wide) < 1e-4 * np.linalg.norm(wide)


def test_rows_and_units_of_weight_zero_do_no_harm():
    blocks, gradient = problem(rows=6)
    empty = UnitBlocks(blocks.inputs, blocks.curvature.at[:, :3].set(0.0).at[1].set(0.0))
    found = join(run(shared(), empty, gradient, 0.1).value)
    np.testing.assert_allclose(found[1], join(gradient)[1] / 0.1, rtol=1e-9)
    np.testing.assert_allclose(found, in_shared_basis(empty, gradient, 0.1, 32), atol=1e-9)


@pytest.mark.slow
def test_stores_two_thin_matrices():
    blocks, _ = problem(inputs=40, units=7, rows=50)
    factor = shared(8).prepare(blocks, jnp.full(7, 0.1))
    assert sum(leaf.size for leaf in factor) == 41 * 8 + 7 * 8 + 7


def test_dense_blocks_are_refused():
    blocks, _ = problem()
    with pytest.raises(ValueError, match="shared solver needs a metric made of rows"):
        shared().prepare(DenseBlocks(blocks.dense()), jnp.full(4, 0.1))
