"""Compilation ahead of time, every intermediate result in memory of its own, vectors as wide as they come.

XLA's CPU compiler lets results that are not needed at the same time share memory, and where they
share it, operations wait for each other that could run side by side: dreams for the wake phase, the
next layer for the last one's log-probability. A limit of one byte on every piece of shared memory
stops the sharing. On two cores that is a third of a reweighted wake-sleep step; it costs two to four
times the memory of a step's intermediate results. Where the processor has vectors of 512 bits, the
compiler would use half of them.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax

_OPTIONS = {"xla_multiheap_size_constraint_per_heap": 1, "xla_cpu_prefer_vector_width": 512}
_LEVELS = {"0": "INFO", "1": "WARNING", "2": "ERROR", "3": "CRITICAL"}  # as in TF_CPP_MIN_LOG_LEVEL


def compiled(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """A function compiled for arguments like these."""
    lowered = jax.jit(function).lower(*arguments)
    if jax.default_backend() != "cpu":
        return lowered.compile()
    with _without_warnings():
        return lowered.compile(compiler_options=_OPTIONS)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """The compiler would warn of each result that is larger than the limit, again and again."""
    before = jax.config.jax_logging_level
    jax.config.update("jax_logging_level", "ERROR")
    try:
        yield
    finally:
        usual = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1")
        jax.config.update("jax_logging_level", _LEVELS.get(usual, "WARNING"))
        jax.config.update("jax_logging_level", before)
