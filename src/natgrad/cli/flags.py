"""The flags people use every day; their names are the short names of `natgrad.config`."""

from dataclasses import dataclass, fields
from typing import Annotated, Any

from cyclopts import Parameter

from natgrad.cli.dotted import literal, whole

SIZES = ("layers", "image_shape", "filters")
Whole = Annotated[int | None, Parameter(converter=whole)]


@dataclass(frozen=True)
class Flags:
    """Everyday settings of a training."""

    model: str | None = None
    """helmholtz, or a network: mlp, convnet, autoencoder."""
    method: str | None = None
    """How the gradient is made and measured: ws, rws, bihm, or natural: nws, nrws, dnrws, nbihm.
    For networks: natural, hessian-free, krylov, tonga, units, plain."""
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
    """auto, direct, dual, shared, cg, diagonal or minres; direct and dual are exact, auto is not."""
    optimizer: str | None = None
    """What is done with the direction: sgd, momentum, nesterov, adam, nadam or rmsprop."""
    coding: str | None = None
    """Units in {-1,+1} (signed) or {0,1} (binary)."""
    activation: str | None = None
    """A network's units: tanh, sigmoid or relu."""
    output: str | None = None
    """The law of a network's targets: softmax (classes), sigmoid or linear."""
    filters: str | None = None
    """Filters of a convnet's banks: 8,16."""
    labelled: Whole = None
    """Training rows whose labels are known; the others serve as unlabeled metric data."""
    metric_data: str | None = None
    """The rows of a network's metric: same (as the gradient's), different, unlabeled, both."""
    device: str | None = None
    """auto, cpu, gpu or tpu."""
    seed: Whole = None
    """Decides the initial weights, the order of rows and every sample."""

    def given(self) -> dict[str, Any]:
        """The settings that were given, sizes as lists of numbers."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: value for name, value in named.items() if value is not None}
        return given | {name: _sizes(given[name]) for name in SIZES if name in given}


def _sizes(text: str) -> Any:
    value = literal(text)
    return value if isinstance(value, list) else [value]
