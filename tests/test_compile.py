"""Programs compiled with memory apart for every result do what they did, and quietly."""

import re
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad import config, devices
from natgrad.data import load
from natgrad.errors import InputError
from natgrad.training import checks
from natgrad.training import compile as compiling
from natgrad.training.session import Session


def phases(x, y):
    """Two chains that need not wait for each other, and what becomes of them."""
    for _ in range(4):
        x, y = jnp.tanh(x @ x.T), jnp.sin(y @ y.T)
    return x - y


def memory(steps):
    x = jnp.ones((50, 50))
    return compiling.compiled(phases, x, x, steps=steps).memory_analysis().temp_size_in_bytes


def test_a_long_run_has_the_results_of_a_short_one_to_the_bit():
    x, y = jnp.eye(50) + 0.1, jnp.linspace(0, 1, 2500).reshape(50, 50)
    short, long = (compiling.compiled(phases, x, y, steps=steps)(x, y) for steps in (1, compiling.LONG))
    np.testing.assert_array_equal(long, short)
    np.testing.assert_allclose(short, jax.jit(phases)(x, y), rtol=1e-6, atol=1e-6)


def test_results_of_a_long_run_share_no_memory():
    assert memory(compiling.LONG) > 1.5 * memory(compiling.LONG - 1)


@pytest.mark.parametrize("steps", [1, compiling.LONG])
def test_donated_arguments_become_results(steps):
    x, y = jnp.ones((50, 50)), jnp.ones((50, 50))
    program = compiling.compiled(phases, x, y, steps=steps, donate=(0,))
    assert program.memory_analysis().alias_size_in_bytes == x.nbytes
    program(x, y)
    assert x.is_deleted()
    assert not y.is_deleted()


@pytest.mark.parametrize("level", ["NOTSET", "INFO"])
def test_settings_of_jax_are_as_before(level):
    names = "jax_logging_level", "jax_persistent_cache_min_compile_time_secs"
    before = jax.config.values["jax_logging_level"]
    jax.config.update("jax_logging_level", level)
    try:
        settings = [jax.config.values[name] for name in names]
        memory(compiling.LONG)
        assert [jax.config.values[name] for name in names] == settings
    finally:
        jax.config.update("jax_logging_level", before)


def test_nothing_is_printed(tmp_path):
    """Warnings come from below Python, so a process of its own must be quiet, with a cache on disk, too."""
    code = (
        "import jax, jax.numpy as jnp; from natgrad.training import compile as c; x = jnp.ones((50, 50));"
        f"jax.config.update('jax_compilation_cache_dir', {str(tmp_path)!r});"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0);"
        "f = lambda x: jnp.tanh(x @ x.T) @ jnp.sin(x @ x); c.compiled(f, x, steps=c.LONG)(x)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("settings", "share", "advice"),
    [
        (
            {"batch_size": 100, "samples": 100_000},
            0.2637,
            "about --batch-size 25, about --samples 25000, or ",
        ),
        ({"batch_size": 100, "samples": 100_000}, 0.0037, "about --samples 350, or "),
        ({"model": "mlp", "batch_size": 9000}, 0.5, "about --batch-size 4200, or "),
        ({"batch_size": 100, "objective.growth": ((2, 100_000),)}, 0.5, "about --batch-size 47, or "),
    ],
)
def test_what_fits_is_told(settings, share, advice):
    assert checks.size_hint(config.resolve(settings), share) == advice


def test_a_program_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(compiling, "memory_bytes", lambda: 2**30)
    facts = SimpleNamespace(temp_size_in_bytes=3 * 2**30, output_size_in_bytes=2**30)
    sentence = "a step takes 4 GB of memory, this computer has 1 GB; use 0.25 of it, or a smaller model"
    with pytest.raises(InputError, match=sentence):
        compiling.check_program_memory(facts, lambda share: f"{share} of it, or ")


def test_a_container_has_less_memory_than_the_computer(tmp_path, monkeypatch):
    paths = [tmp_path / name for name in ("v2", "v1", "none")]
    paths[0].write_text("max\n")
    monkeypatch.setattr(devices, "LIMITS", paths)
    whole = devices.memory_bytes()
    paths[1].write_text("123456\n")
    assert devices.memory_bytes() == 123456 < whole


@pytest.mark.slow
def test_as_many_samples_as_are_told_fit(monkeypatch):
    """A computer of 64 MB, and 100,000 samples: what the refusal names is accepted, and not much more."""
    monkeypatch.setattr(compiling, "memory_bytes", lambda: 1 << 26)

    def attempt(samples):
        found = config.resolve({"layers": (10,), "batch_size": 100, "samples": samples})
        Session.begin(found, load("digits"))._compile()

    with pytest.raises(InputError, match=r"a step takes .* GB of memory, this computer has 0.0625") as caught:
        attempt(100_000)
    told = int(re.search(r"about --samples (\d+), or a smaller model", str(caught.value))[1])
    assert told > 100
    attempt(told)
    with pytest.raises(InputError, match="a step takes"):
        attempt(told * 5 // 4)


def test_more_rows_than_fill_the_memory_are_not_drawn(monkeypatch):
    monkeypatch.setattr(devices, "memory_bytes", lambda: 16 * 5 * 100)
    model = {"weights": jnp.zeros((2, 3)), "low": jnp.zeros(2), "high": jnp.zeros(3)}
    checks.check_drawn(100, model)
    with pytest.raises(InputError, match=r"at most 100 rows, which fill the memory .*, got 101"):
        checks.check_drawn(101, model)
