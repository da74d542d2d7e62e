"""Programs compiled with memory of their own for every result do what they did, and quietly."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad import ahead


def phases(x, y):
    """Two chains that need not wait for each other, and what becomes of them."""
    for _ in range(4):
        x, y = jnp.tanh(x @ x.T), jnp.sin(y @ y.T)
    return x - y


@pytest.mark.parametrize("make", [lambda f, *a: ahead.compiled(f, *a), lambda f, *a: ahead.jit(f)])
def test_results_are_those_of_jit(make):
    x, y = jnp.eye(50) + 0.1, jnp.linspace(0, 1, 2500).reshape(50, 50)
    np.testing.assert_allclose(make(phases, x, y)(x, y), jax.jit(phases)(x, y), rtol=1e-6, atol=1e-6)


def test_results_share_no_memory():
    x = jnp.ones((50, 50))
    apart = ahead.compiled(phases, x, x).memory_analysis().temp_size_in_bytes
    together = jax.jit(phases).lower(x, x).compile().memory_analysis().temp_size_in_bytes
    assert apart > 1.5 * together


def test_static_arguments_are_those_of_jit():
    run = ahead.jit(power, static_argnames="times")
    assert float(run(jnp.asarray(3.0), times=2)) == 9.0
    assert float(run(jnp.asarray(3.0), times=3)) == 27.0


def power(x, *, times: int):
    assert isinstance(times, int)
    return x**times


@pytest.mark.parametrize("level", [None, "INFO"])
def test_the_level_of_logging_is_as_before(level):
    before = jax.config.jax_logging_level
    jax.config.update("jax_logging_level", level)
    try:
        ahead.compiled(phases, jnp.ones((8, 8)), jnp.ones((8, 8)))
        assert jax.config.jax_logging_level == level
    finally:
        jax.config.update("jax_logging_level", before)


def test_nothing_is_printed():
    """The compiler's warnings come from below Python, so a process of its own must be quiet."""
    code = (
        "import jax.numpy as jnp; from natgrad import ahead; x = jnp.ones((50, 50));"
        "f = lambda x: jnp.tanh(x @ x.T) @ jnp.sin(x @ x); ahead.compiled(f, x)(x); ahead.jit(f)(x)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
