"""natgrad: natural gradients for probabilistic models, on JAX."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "train": "natgrad.training.run",
    "load": "natgrad.training.run",
    "resume": "natgrad.training.run",
    "Run": "natgrad.training.run",
    "minimize": "natgrad.relax.minimize",
    "least_squares": "natgrad.fitting.loop",
    "InputError": "natgrad.errors",
}
__all__ = ["InputError", "Run", "least_squares", "load", "minimize", "resume", "train"]


def __getattr__(name: str) -> Any:
    """Import the public names when they are asked for: `natgrad --help` must not wait for JAX."""
    if name not in _WHERE:
        raise AttributeError(f"module 'natgrad' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
