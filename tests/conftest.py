"""Tests run in float64, with strict dtypes and warnings as errors."""

import os
from pathlib import Path

import jax
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_disable_most_optimizations", True)  # tiny models: compiling is what takes time


@pytest.fixture
def optimised():
    """Compile as users do, for a test that trains for long."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets; tests that need it are skipped, loudly, without it."""
    folder = os.environ.get("NATGRAD_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("NATGRAD_DATA names no folder: tests on real data are not run")
    return Path(folder)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder for the runs of a module; those that differ only in numbers share their programs."""
    made = tmp_path_factory.mktemp("runs")
    options = {
        "jax_compilation_cache_dir": str(made / "xla"),
        "jax_persistent_cache_min_compile_time_secs": 0,
    }
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    yield made
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture(scope="module")
def data(place):
    """Fifty grey images of 2 x 3 pixels: 40 rows train, so an epoch is five batches of 8."""
    np.save(place / "own.npy", np.random.default_rng(0).random((50, 2, 3)))
    return str(place / "own.npy")
