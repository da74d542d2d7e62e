"""Tests run in float64, with strict dtypes and warnings as errors."""

import os
from pathlib import Path

import jax
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
