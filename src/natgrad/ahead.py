"""Compilation of what runs for long: memory of its own for every intermediate result, wide vectors.

XLA's CPU compiler lets results that are not needed at the same time share memory, and where they
share it, operations wait for each other that could run side by side: dreams for the wake phase, the
next layer for the last one's log-probability. A limit of 64 bytes on every piece of shared memory
stops the sharing of all but scalars. On two cores that is a third of a reweighted wake-sleep step; it
costs two to four times the memory. And of a processor's vectors of 512 bits the compiler would use
half.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax

_OPTIONS: dict[str, str | bool] = {
    "xla_multiheap_size_constraint_per_heap": "64",
    "xla_cpu_prefer_vector_width": "512",
}
_LEVELS = {"0": "INFO", "1": "WARNING", "2": "ERROR", "3": "CRITICAL"}  # as in TF_CPP_MIN_LOG_LEVEL


def compiled(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """A function compiled for arguments like these, ahead of its first call."""
    lowered = jax.jit(function).lower(*arguments)
    if jax.default_backend() != "cpu":
        return lowered.compile()
    with _without_warnings():
        return lowered.compile(compiler_options=_OPTIONS)


def jit(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    """A function compiled at its first call for arguments of a kind; settings are those of `jax.jit`."""
    usual, fast = jax.jit(function, **settings), jax.jit(function, compiler_options=_OPTIONS, **settings)

    @functools.wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        if jax.default_backend() != "cpu":
            return usual(*arguments, **named)
        with _without_warnings():
            return fast(*arguments, **named)

    return run


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """The compiler would warn of each result that is larger than the limit, again and again."""
    before = jax.config.values["jax_logging_level"]
    jax.config.update("jax_logging_level", "ERROR")
    try:
        yield
    finally:
        usual = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1")
        jax.config.update("jax_logging_level", _LEVELS.get(usual, "WARNING"))
        jax.config.update("jax_logging_level", before)
