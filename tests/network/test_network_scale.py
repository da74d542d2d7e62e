"""Memory, compilation and devices: what a network's metric costs."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from network_cases import measured_on

from natgrad.core import TAKEN
from natgrad.layers import outputs, perceptron
from natgrad.layers.task import Examples, Task, TaskBatch
from natgrad.metrics import curvature, empirical
from natgrad.models.network import presets

SIZES = (1000, 2000, 2000, 2000, 10)  # ten million parameters
TASK = Task(perceptron.perceptron(), outputs.softmax())


def shapes(rows):
    """Parameters, a vector and a batch of which only the shapes exist."""
    from itertools import pairwise

    layers = tuple(
        perceptron.Layer(
            jax.ShapeDtypeStruct((units, inputs), jnp.float32), jax.ShapeDtypeStruct((units,), jnp.float32)
        )
        for inputs, units in pairwise(SIZES)
    )
    x = jax.ShapeDtypeStruct((rows, SIZES[0]), jnp.float32)
    return layers, x, jax.ShapeDtypeStruct((rows,), jnp.int32)


def temporary(metric, rows):
    """Bytes of temporary memory of one compiled product."""
    layers, x, t = shapes(rows)
    product = lambda p, v, x, t: measured_on(metric, TASK, p, Examples(x, t)).bind().mv(v)  # noqa: E731
    compiled = jax.jit(product).lower(layers, layers, x, t).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def parameter_bytes():
    return sum(4 * leaf.size for leaf in jax.tree.leaves(shapes(1)[0]))


@pytest.mark.few(1)
@pytest.mark.parametrize("rows", [64, 1000])
def test_a_product_on_ten_million_parameters_needs_four_times_their_memory_at_most(optimized, rows):
    assert parameter_bytes() > 4e7
    assert temporary(curvature.fisher(rows_at_once=64), rows) <= 4 * parameter_bytes()


@pytest.mark.slow
def test_rows_at_once_bound_the_memory_of_activations(optimized):
    """Ten thousand rows of activations would take 280 MB more than portions of 64 do."""
    whole, pieces = (temporary(curvature.fisher(rows_at_once=size), 10_000) for size in (None, 64))
    assert pieces < parameter_bytes() * 4 < whole
    assert temporary(empirical.centered_covariance(rows_at_once=64), 10_000) <= 4 * parameter_bytes()


def test_the_whole_step_is_compiled_once():
    traces = []

    def network(p, x):
        traces.append(1)
        return jnp.tanh(x @ p)

    task = Task(network, outputs.linear())
    method = presets.natural_network(task, iterations=3)
    batch = TaskBatch(Examples(jnp.ones((4, 2)), jnp.ones((4, 1))))
    state = method.init(jax.random.key(0), jnp.ones((2, 1)), batch)
    step = jax.jit(method.step)
    for _ in range(3):
        state, info = step(jax.random.key(0), state, batch)
        counted = len(traces)
        assert info.result == TAKEN
    assert step._cache_size() == 1
    state, _ = step(jax.random.key(1), state, batch)
    assert len(traces) == counted


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from natgrad.metrics.curvature import fisher
from natgrad.metrics.layer_blocks import exact_blocks, kronecker_blocks
from natgrad.solvers.layer_blocks import block_solve, factored_solve
from natgrad.layers import convolution, outputs, perceptron
from natgrad.layers.task import TaskBatch, Examples, Task
from natgrad.models.network import presets
from natgrad.solvers.minres import minres_qlp
from natgrad.solvers.truncated import conjugate_gradient
from natgrad.updates.damping import levenberg_marquardt
from natgrad.updates.lengths import learning_rate
from natgrad.updates.natural import Options

assert jax.device_count() == 2
task = Task(perceptron.perceptron(), outputs.softmax())
layers = perceptron.fresh_perceptron(jax.random.key(0), (3, 4, 2))
rng = np.random.default_rng(0)
rows = Examples(jnp.asarray(rng.normal(size=(8, 3))), jnp.asarray(rng.integers(0, 2, 8)))
mesh = jax.make_mesh((2,), ("rows",), axis_types=(AxisType.Auto,))
spread = jax.device_put(rows, NamedSharding(mesh, P("rows")))
assert len(spread.inputs.sharding.device_set) == 2
same = jax.device_put(layers, NamedSharding(mesh, P()))
one = Options(length=learning_rate(1.0))
for parts in ((fisher(), conjugate_gradient(8), one._replace(damping=levenberg_marquardt(0.1))),
              (fisher(rows_at_once=3), minres_qlp(8), one),
              (kronecker_blocks(fisher()), factored_solve(), one),
              (exact_blocks(fisher(), decay=0.5), block_solve(), one._replace(refresh=3))):
    method = presets.truncated(task, *parts)
    def step(p, batch):
        return method.step(jax.random.key(1), method.init(jax.random.key(1), p, batch), batch)[0].model
    alone, together = jax.jit(step)(layers, TaskBatch(rows)), jax.jit(step)(same, TaskBatch(spread))
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
print("same")
"""


@pytest.mark.slow
def test_a_batch_over_two_devices_gives_the_same_step():
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }
    found = subprocess.run(
        [sys.executable, "-c", SHARDED],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    assert found.stdout.strip() == "same", found.stderr
