"""Small layers treated together give what each gives alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad import tree
from natgrad.layers import stacks
from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import UnitBlocks
from natgrad.solvers.unit_cg import unit_conjugate_gradient
from natgrad.solvers.units import LayerSystem

SHAPES = [(300, 5), (20, 7), (3, 30), (40, 60), (61, 12), (1, 1)]
ROWS = 6


def layers(seed: int) -> tuple[Layer, ...]:
    draw = np.random.default_rng(seed).normal
    return tuple(Layer(jnp.asarray(draw(size=shape)), jnp.asarray(draw(size=shape[0]))) for shape in SHAPES)


def blocks(seed: int) -> tuple[UnitBlocks, ...]:
    random = np.random.default_rng(seed)
    sides = [(random.choice([-1.0, 1.0], (i, ROWS)), random.uniform(0, 0.25, (o, ROWS))) for o, i in SHAPES]
    return tuple(UnitBlocks(jnp.asarray(inputs), jnp.asarray(curve) / ROWS) for inputs, curve in sides)


def assert_close(left, right, atol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), left, right)


@pytest.mark.slow
def test_products_are_those_of_every_layer():
    product = lambda vector, metric: metric.mv(vector)  # noqa: E731
    together = jax.jit(lambda *given: stacks.map_stacked(product, *given))
    alone = jax.jit(lambda *given: tree.map_layers(product, *given))
    assert_close(together(layers(0), blocks(1)), alone(layers(0), blocks(1)), 1e-12)


def test_solutions_are_those_of_every_layer():
    solver = unit_conjugate_gradient(8)

    def solve(right: Layer, metric: UnitBlocks) -> Layer:
        damping = jnp.full(right.bias.shape, 0.2)
        system = LayerSystem(metric, damping, solver.prepare(metric, damping))
        return solver.solve([system], [right])[0].value

    together = jax.jit(lambda *given: stacks.map_stacked(solve, *given))
    alone = jax.jit(lambda *given: tree.map_layers(solve, *given))
    found = together(layers(2), blocks(3))
    assert_close(found, alone(layers(2), blocks(3)), 1e-9)
    for x, metric, right in zip(found, blocks(3), layers(2), strict=True):
        inputs, curve = (np.asarray(side) for side in (metric.inputs, metric.curvature))
        inputs = np.concatenate([np.ones((1, ROWS)), inputs])
        vector = np.concatenate([np.asarray(x.bias)[:, None], np.asarray(x.weight)], axis=1)
        product = (curve * (vector @ inputs)) @ inputs.T + 0.2 * vector
        np.testing.assert_allclose(product[:, 0], right.bias, atol=1e-9)
        np.testing.assert_allclose(product[:, 1:], right.weight, atol=1e-9)


def test_few_programs_for_many_layers():
    """A function is traced once per group and once for the shapes of each of its layers."""
    calls = []
    count = lambda layer: calls.append(layer.weight.shape) or layer  # noqa: E731
    jax.eval_shape(lambda given: stacks.map_stacked(count, given), layers(0))
    assert (20, 30) in calls  # the layers up to 32: padded to the longest of each side
    assert (61, 60) in calls
    assert (300, 5) in calls
