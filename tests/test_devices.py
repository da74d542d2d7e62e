"""Rows split over devices: the same step, and no row leaves its device."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cases import machine
from natgrad.devices import placed
from natgrad.models.helmholtz import fisher
from natgrad.models.helmholtz.phases import reweighted

ROWS, SAMPLES, DEVICES = 8, 3, 4


def compiled():
    """A step's gradient and blocks of its Fisher, and the compiled program, on the devices of the mesh."""
    model = machine((6, 4, 3))
    on = jax.random.bernoulli(jax.random.key(3), 0.5, (6, ROWS))
    batch = model.coding.value(on, jnp.float64)

    def step(key, batch):
        estimate, _ = reweighted(SAMPLES).estimate(key, (), model, placed(batch, None, "rows"))
        metric, _ = fisher.recognition_from_wake(16).measure(key, (), model, estimate.samples)
        blocks = tuple(layer.dense() for layer in metric.blocks["recognition"])
        return estimate.value, estimate.gradient, blocks

    program = jax.jit(step).lower(jax.random.key(0), batch).compile()
    found = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(program(jax.random.key(0), batch))])
    return np.asarray(found).tolist(), program.as_text()


def split():
    """The same with rows split over virtual devices, printed for the test below."""
    jax.config.update("jax_enable_x64", True)
    with jax.set_mesh(jax.make_mesh((DEVICES,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))):
        print(json.dumps(compiled()))


def test_without_a_mesh_nothing_is_placed():
    array = jnp.ones((4, 2))
    assert placed(array, "rows", None) is array


@pytest.mark.slow  # a further case of tests/test_scale.py
def test_a_step_with_split_rows_is_the_same_and_gathers_none():
    flags = f"--xla_force_host_platform_device_count={DEVICES}"
    asked = subprocess.run(
        [sys.executable, "-c", "import test_devices; test_devices.split()"],
        cwd=Path(__file__).parent,
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    found, program = json.loads(asked.stdout)
    np.testing.assert_allclose(found, compiled()[0], atol=1e-12, rtol=0)
    assert "all-reduce" in program
    assert re.findall(r"all-gather|all-to-all|collective-permute", program) == []
