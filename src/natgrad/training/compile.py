"""Compilation ahead of time, for a processor's widest vectors, and for long runs with memory apart.

XLA's CPU compiler lets results that are not needed at the same time share memory, and where they
share it, operations wait for each other that could run side by side: dreams for the wake phase, the
next layer for the last one's log-probability. On two cores that is a third of a reweighted wake-sleep
step. A limit of one byte on every piece of shared memory stops the sharing. It costs two
to four times the memory, and such a program cannot be kept in the cache on disk, so it is for runs that
are longer than a compilation. Results are the same to the bit.
"""

import contextlib
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import jax

from natgrad.core import Pace
from natgrad.devices import has_mesh, memory_bytes, sharding_of
from natgrad.errors import InputError

LONG = 20_000  # steps, from which on memory apart is worth a compilation
_KEPT = 48  # programs and shapes that are kept for further trainings of the same shapes: of 16 of them
WIDE: dict[str, str | bool] = {"xla_cpu_prefer_vector_width": "512"}  # its own choice is half of it
_APART: dict[str, str | bool] = WIDE | {"xla_multiheap_size_constraint_per_heap": "1"}
_LEVELS = {"0": "INFO", "1": "WARNING", "2": "ERROR", "3": "CRITICAL"}  # as in TF_CPP_MIN_LOG_LEVEL
_programs: OrderedDict[Hashable, Any] = OrderedDict()

OTHERS = {"seed": True, "data": True, "training": {"epochs", "save_seconds", "chunk_steps", "device"}}
"""Settings that no step depends on but by its shapes."""


def program_key(settings: Any, stage: int, pace: Pace, replaceable: Hashable = ()) -> Hashable:
    """What a chunk of steps depends on beside the shapes of its arguments; see `Problem.replaceable`."""
    exclude = OTHERS | {"evaluation": set(type(settings.evaluation).model_fields) - {"average"}}
    return settings.model_dump_json(exclude=exclude), stage, pace, replaceable


def numbers_of(settings: Any) -> tuple[float, float]:
    """The numbers that are arguments of a step: the learning rate, and a damping that does not change."""
    return settings.optimizer.learning_rate, settings.metric.damping if _is_damped(settings) else 1.0


def without_numbers(settings: Any) -> Any:
    """Settings that are the same for all learning rates and dampings."""
    update = {"optimizer": settings.optimizer.model_copy(update={"learning_rate": 0.0})}
    if _is_damped(settings):
        update["metric"] = settings.metric.model_copy(update={"damping": 1.0})
    return settings.model_copy(update=update)


def _is_damped(settings: Any) -> bool:
    metric = getattr(settings, "metric", None)
    return hasattr(metric, "damping") and getattr(metric, "final_damping", None) is None


def compiled(
    function: Callable[..., Any],
    *arguments: Any,
    steps: int = 0,
    donate: tuple[int, ...] = (),
    key: Hashable = None,
    results: Any = None,
    advice: Callable[[float], str] = lambda share: "",
) -> Callable[..., Any]:
    """A function compiled for arguments like these, to take that many steps; those donated become results.

    Functions with the same key are the same: for arguments of the same shapes one of them is compiled once.
    `advice` says what to do where only such a share of what the program takes fits into memory.
    On a mesh arguments are laid out as they are, or as their shapes say, and so are results like `results`.
    """
    apart = steps >= LONG and jax.default_backend() == "cpu"

    def make() -> Callable[..., Any]:
        lowered = jax.jit(function, donate_argnums=donate, **_layout(arguments, results)).lower(*arguments)
        program: Any = _compile_apart(lowered) if apart else lowered.compile(compiler_options=WIDE)
        check_program_memory(program.memory_analysis(), advice)
        return program

    return make() if key is None else kept(("program", key, apart, donate), make, *arguments)


def kept(key: Hashable, make: Callable[[], Any], *arguments: Any) -> Any:
    """What was made before for this key and arguments of these shapes, or is made now."""
    mesh = jax.sharding.get_mesh() if has_mesh() else None
    whole = (key, mesh, *_configured(), *_shapes(arguments, laid_out=mesh is not None))
    if whole in _programs:
        _programs.move_to_end(whole)
        return _programs[whole]
    _programs[whole] = made = make()
    while len(_programs) > _KEPT:
        _programs.popitem(last=False)
    return made


def check_program_memory(facts: Any, advice: Callable[[float], str]) -> None:
    """Refuse a program that takes more memory than the computer has: the system would end the process."""
    if facts is None or jax.default_backend() != "cpu":
        return  # other devices say so themselves
    needed, there = facts.temp_size_in_bytes + facts.output_size_in_bytes, memory_bytes()
    if needed > there:
        raise InputError(
            f"a step takes {needed / 2**30:.3g} GB of memory, this computer has {there / 2**30:.3g} GB; use "
            f"{advice(there / needed)}a smaller model"
        )


def _compile_apart(lowered: Any) -> Callable[..., Any]:
    with _uncached(), _without_warnings():
        return lowered.compile(compiler_options=_APART)


def _layout(arguments: Any, results: Any) -> dict[str, Any]:
    """Where arguments and results live on the mesh, as options of `jax.jit`."""
    if not has_mesh():
        return {}
    given = {"in_shardings": jax.tree.map(sharding_of, arguments)}
    return given if results is None else given | {"out_shardings": jax.tree.map(sharding_of, results)}


def _shapes(arguments: Any, *, laid_out: bool) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten(arguments)
    places = [*map(sharding_of, leaves)] if laid_out else []
    return structure, *places, *((jax.numpy.shape(leaf), str(jax.numpy.result_type(leaf))) for leaf in leaves)


def _configured() -> tuple[str, ...]:
    """What else decides a program: precision, device, optimizations."""
    names = (
        "jax_enable_x64",
        "jax_default_device",
        "jax_disable_most_optimizations",
        "jax_default_matmul_precision",
    )
    return tuple(str(jax.config.values[name]) for name in names)


@contextlib.contextmanager
def _uncached() -> Iterator[None]:
    """JAX would try to write the program to its cache, and complain that it cannot."""
    before = jax.config.values["jax_persistent_cache_min_compile_time_secs"]
    jax.config.update("jax_persistent_cache_min_compile_time_secs", float("inf"))
    try:
        yield
    finally:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", before)


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
