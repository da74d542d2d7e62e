"""A metric with a block for every unit, as one operator, against the matrix that it stands for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from natgrad.core import Metric
from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import DenseBlocks, UnitBlocks, join, split
from natgrad.metrics.layered import LayeredFisher, averaged, gained, map_nodes, nodes

SHAPES = {"wide": (3, 5, 4), "tall": (4, 2, 9)}  # units, inputs, rows
KEY = jax.random.key(0)


def rows(shape, seed):
    units, inputs, count = shape
    draw = np.random.default_rng(seed)
    curvature = draw.uniform(0, 0.25, (units, count)) / count
    return UnitBlocks(jnp.asarray(draw.choice([0.0, 1.0], (inputs, count))), jnp.asarray(curvature))


def operator(seed=0, dense=False):
    """Two layers and an array of its own, in a tree."""
    layers = tuple(rows(shape, seed + number) for number, shape in enumerate(SHAPES.values()))
    whole = tuple(DenseBlocks(layer.dense()) for layer in layers) if dense else layers
    return LayeredFisher({"alone": jnp.linspace(0.1, 0.2, 3) + seed, "layers": whole})


def like(seed=0):
    """A vector for it."""
    draw = np.random.default_rng(10 + seed).normal
    layers = tuple(
        Layer(jnp.asarray(draw(size=(units, inputs))), jnp.asarray(draw(size=units)))
        for units, inputs, _ in SHAPES.values()
    )
    return {"alone": jnp.asarray(draw(size=3)), "layers": layers}


def flat(vector):
    """Node by node, unit by unit, the bias last."""
    parts = [vector["alone"], *(join(layer).ravel() for layer in vector["layers"])]
    return np.concatenate([np.asarray(part) for part in parts])


def matrix(found):
    """The whole operator as one matrix, made of scalars: F_j = sum over rows of curvature u u^T."""
    pieces = [np.diag(np.asarray(found.blocks["alone"]))]
    for layer in found.blocks["layers"]:
        inputs, curvature = np.asarray(layer.inputs), np.asarray(layer.curvature)
        for unit in curvature:
            u = [np.append(inputs[:, row], 1.0) for row in range(inputs.shape[1])]
            pieces.append(sum(c * np.outer(each, each) for c, each in zip(unit, u, strict=True)))
    size = sum(map(len, pieces))
    whole, at = np.zeros((size, size)), 0
    for piece in pieces:
        whole[at : at + len(piece), at : at + len(piece)] = piece
        at += len(piece)
    return whole


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.few(1)
def test_products_and_the_diagonal_are_those_of_the_matrix(dense):
    found, expected = operator(dense=dense), matrix(operator())
    product = found.bind()
    for vector in (like(0), like(1)):
        np.testing.assert_allclose(flat(product.mv(vector)), expected @ flat(vector), atol=1e-12)
        np.testing.assert_allclose(flat(found.mv(vector)), expected @ flat(vector), atol=1e-12)
    np.testing.assert_allclose(flat(product.diagonal()), np.diag(expected), atol=1e-12)
    assert jax.tree.structure(found.like) == jax.tree.structure(like())
    assert [leaf.shape for leaf in jax.tree.leaves(found.like)] == [
        leaf.shape for leaf in jax.tree.leaves(like())
    ]


@pytest.mark.parametrize("dense", [False, True])
def test_the_mean_diagonal_is_one_number_for_every_unit(dense):
    found, expected = operator(dense=dense), np.diag(matrix(operator()))
    alone, *layers = found.mean_diagonal(KEY)
    np.testing.assert_allclose(alone, expected[:3], atol=1e-14)
    at = 3
    for (units, inputs, _), mean in zip(SHAPES.values(), layers, strict=True):
        side = expected[at : at + units * (inputs + 1)].reshape(units, -1)
        np.testing.assert_allclose(mean, side.mean(axis=1), atol=1e-14)
        at += side.size


def test_an_operator_is_a_pytree():
    """It can be carried, compiled over, and have its numbers blended."""
    found, vector = operator(), like()
    again = jax.jit(lambda fisher, v: fisher.mv(v))(found, vector)
    np.testing.assert_allclose(flat(again), matrix(found) @ flat(vector), atol=1e-12)
    numbers, back = ravel_pytree(found)
    assert numbers.size == 3 + sum((units + inputs) * count for units, inputs, count in SHAPES.values())
    np.testing.assert_array_equal(matrix(back(numbers)), matrix(found))


def test_nodes_are_layers_and_arrays_in_order():
    vector, found = like(), operator()
    assert [type(node).__name__ for node in nodes(found.blocks)[1:]] == ["UnitBlocks", "UnitBlocks"]
    assert [type(node).__name__ for node in nodes(vector)[1:]] == ["Layer", "Layer"]
    twice = map_nodes(lambda node, block: jax.tree.map(lambda leaf: 2 * leaf, node), vector, found.blocks)
    np.testing.assert_allclose(flat(twice), 2 * flat(vector))


def test_the_gain_is_one_number_or_one_for_every_unit():
    vector, alone = like(), jnp.asarray([0.1, 0.2, 0.3])
    np.testing.assert_allclose(flat(gained(0.5, vector)), 1.5 * flat(vector))
    per_unit = (alone, jnp.asarray([1.0, 2.0, 3.0]), jnp.asarray([4.0, 5.0, 6.0, 7.0]))
    found = gained(per_unit, vector)
    np.testing.assert_allclose(found["alone"], (1 + alone) * vector["alone"])
    for damping, got, given in zip(per_unit[1:], found["layers"], vector["layers"], strict=True):
        np.testing.assert_allclose(join(got), (1 + damping)[:, None] * join(given), atol=1e-14)


def multiplied(factor):
    """The operator with every number of its rows multiplied."""
    return jax.tree.map(lambda leaf: factor * leaf, operator())


def counting():
    """A metric that multiplies by what was drawn, and counts its measurements."""

    def measure(key, carry, model, drawn):
        del key, model
        return multiplied(drawn), carry + 1

    return Metric(lambda key, model, drawn: jnp.zeros((), jnp.int32), measure)


def test_an_average_is_of_matrices_and_starts_with_the_first():
    """mean_t = decay mean_{t-1} + (1 - decay) F_t, from mean_0 = F_0; what the metric carries is carried."""
    mean = averaged(counting(), 0.75)
    carry = mean.init(KEY, None, jnp.asarray(1.0))
    assert all(float(jnp.abs(leaf).max()) == 0 for leaf in jax.tree.leaves(carry))
    expected = matrix(multiplied(1.0))
    for turn, factor in enumerate((1.0, 3.0, 0.5)):
        found, carry = jax.jit(mean.measure)(KEY, carry, None, jnp.asarray(factor))
        expected = 0.75 * expected + 0.25 * matrix(multiplied(factor))
        np.testing.assert_allclose(column_by_column(found), expected, atol=1e-12)
        assert int(carry[2]) == turn + 1
    assert all(isinstance(node, DenseBlocks) for node in found.blocks["layers"])


def column_by_column(found):
    """The matrix of an operator, from its products."""
    return np.stack([flat(found.mv(unflat(unit))) for unit in np.eye(flat(like()).size)], axis=1)


def unflat(numbers):
    """The inverse of `flat`."""
    numbers = jnp.asarray(numbers)
    at, layers = 3, []
    for units, inputs, _ in SHAPES.values():
        size = units * (inputs + 1)
        layers.append(split(numbers[at : at + size].reshape(units, inputs + 1)))
        at += size
    return {"alone": numbers[:3], "layers": tuple(layers)}
