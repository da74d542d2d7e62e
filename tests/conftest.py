"""Tests run in float64, with strict dtypes and warnings as errors.

Models are tiny, so compiling is what takes time. Each program is compiled once for all workers and all
the commands that tests start: they share a cache on disk, made for this run and removed after it, or the one
that JAX_COMPILATION_CACHE_DIR names, which stays for the next run.
"""

import gc
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest

import counting

gc.disable()  # until all tests are collected
FIRST = "PYTEST_XDIST_WORKER" not in os.environ  # workers inherit the environment of the first process
KEPT = "JAX_COMPILATION_CACHE_DIR" in os.environ
QUICK = {
    "jax_compilation_cache_dir": os.environ["JAX_COMPILATION_CACHE_DIR"] if KEPT else tempfile.mkdtemp(),
    "jax_persistent_cache_min_compile_time_secs": 0.05,  # smaller ones cost more to write
    "jax_disable_most_optimizations": True,
}
FLAGS = " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"  # half the time
sys.dont_write_bytecode = False  # the commands that tests start import what is compiled already
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
for name, value in QUICK.items():
    os.environ[name.upper()] = str(value)
    jax.config.update(name, value)
if FIRST and jax.__version__.startswith("0.10."):  # a flag that XLA does not know ends the process
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + FLAGS
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of the workers, which are as many as cores
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")


def pytest_ignore_collect(collection_path):
    """Files of fixtures have no examples to test, and those of two folders have one name."""
    return True if collection_path.name == "conftest.py" else None


@pytest.hookimpl(tryfirst=True)  # before the slow ones are left out
def pytest_collection_modifyitems(items):
    """Mark the further cases of tests that are marked `few` as slow."""
    seen = Counter()
    for item in items:
        few = item.get_closest_marker("few")
        if few is not None:
            seen[item.parent.nodeid, item.originalname] += 1
            if seen[item.parent.nodeid, item.originalname] > few.args[0]:
                item.add_marker("slow")


def pytest_collection_finish():
    """Look for garbage seldom, and never among what was imported: that takes time and finds nothing."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    gc.enable()


def pytest_addoption(parser):
    parser.addoption("--record", help="write what was tried, file by file, as JSON")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter, config):
    """What hostile tests tried; those that fail have lost, hung or raised."""
    stats = terminalreporter.stats
    if counting.TRIED:
        failed = len(stats.get("failed", [])) + len(stats.get("error", []))
        terminalreporter.write_line(counting.told(failed))
    if config.getoption("--record"):
        named = ("passed", "failed", "error", "skipped", "")
        counting.record(
            config.getoption("--record"), [each for name in named for each in stats.get(name, [])]
        )


@pytest.fixture
def tried(request):
    """Count attempts of a kind: `tried("settings", 3)`."""
    return lambda kind, number=1: counting.count(request.path.name, kind, number)


def pytest_unconfigure():
    if not KEPT:
        shutil.rmtree(QUICK["jax_compilation_cache_dir"], ignore_errors=True)


@pytest.fixture
def usual_environment():
    """For a process that compiles as those of users do."""
    flags = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "").removesuffix(FLAGS)}
    return {name: value for name, value in os.environ.items() if name.lower() not in QUICK} | flags


@pytest.fixture
def optimized():
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
    """A folder for the runs of a module."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def data(place):
    """Fifty gray images of 2 x 3 pixels: 40 rows train, so an epoch is five batches of 8."""
    np.save(place / "own.npy", np.random.default_rng(0).random((50, 2, 3)))
    return str(place / "own.npy")
