"""The flags people use every day; their names are the short names of `natgrad.config`."""

from dataclasses import dataclass, fields
from typing import Annotated, Any

from cyclopts import Parameter

from natgrad.cli.dotted import literal, whole

Whole = Annotated[int | None, Parameter(converter=whole)]


@dataclass(frozen=True)
class Flags:
    """Everyday settings of a training."""

    method: str | None = None
    """How the gradient is made and measured: ws, rws, bihm, or natural: nws, nrws, dnrws, nbihm."""
    data: str | None = None
    """A data set's name (see `natgrad data list`) or a .npy, .npz or .csv file."""
    image_shape: str | None = None
    """Height,width of a user's own images."""
    layers: str | None = None
    """Hidden sizes from the data upward: 200,100,10."""
    epochs: Whole = None
    """Passes over the training set."""
    batch_size: Whole = None
    """Rows in a batch."""
    samples: Whole = None
    """Samples per row, S."""
    learning_rate: float | None = None
    """The step size."""
    damping: float | None = None
    """The natural methods' damping, alpha."""
    refresh: Whole = None
    """Steps that a metric serves, K."""
    solver: str | None = None
    """auto, direct, dual, cg or diagonal."""
    optimizer: str | None = None
    """What is done with the direction: sgd, momentum, nesterov, adam, nadam or rmsprop."""
    coding: str | None = None
    """Units in {-1,+1} (signed) or {0,1} (binary)."""
    device: str | None = None
    """auto, cpu, gpu or tpu."""
    seed: Whole = None
    """Decides the initial weights, the order of rows and every sample."""

    def given(self) -> dict[str, Any]:
        """The settings that were given, sizes as lists of numbers."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: value for name, value in named.items() if value is not None}
        return given | {name: _sizes(given[name]) for name in ("layers", "image_shape") if name in given}


def _sizes(text: str) -> Any:
    value = literal(text)
    return value if isinstance(value, list) else [value]
