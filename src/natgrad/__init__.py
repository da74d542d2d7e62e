"""natgrad: natural gradients for probabilistic models, on JAX."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers: at run time names are imported when they are asked for
    from natgrad import data as data
    from natgrad import families as families
    from natgrad import fitting as fitting
    from natgrad import geometry as geometry
    from natgrad import optax as optax
    from natgrad import relax as relax
    from natgrad import sklearn as sklearn
    from natgrad import sweep as sweep
    from natgrad.errors import InputError as InputError
    from natgrad.fitting.loop import least_squares as least_squares
    from natgrad.relax.minimize import minimize as minimize
    from natgrad.training.run import Run as Run
    from natgrad.training.run import load as load
    from natgrad.training.run import resume as resume
    from natgrad.training.run import train as train
    from natgrad.training.trackers import MlflowWatcher as MlflowWatcher
    from natgrad.training.trackers import WandbWatcher as WandbWatcher

__version__ = "0.1.0"

_WHERE = {
    "train": "natgrad.training.run",
    "load": "natgrad.training.run",
    "resume": "natgrad.training.run",
    "Run": "natgrad.training.run",
    "minimize": "natgrad.relax.minimize",
    "least_squares": "natgrad.fitting.loop",
    "WandbWatcher": "natgrad.training.trackers",
    "MlflowWatcher": "natgrad.training.trackers",
    "InputError": "natgrad.errors",
}
_MODULES = ("data", "families", "fitting", "geometry", "optax", "relax", "sklearn", "sweep")
__all__ = [
    "InputError",
    "MlflowWatcher",
    "Run",
    "WandbWatcher",
    "least_squares",
    "load",
    "minimize",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import the public names when they are asked for: `natgrad --help` must not wait for JAX."""
    if name in _MODULES:
        return import_module(f"natgrad.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module 'natgrad' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    """The public names, for tab completion."""
    return sorted([*__all__, *_MODULES, "__version__"])
