"""What output distributions expect of targets; shapes always, values where they are known (not in jit)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.errors import InputError


def real(outputs: jax.ShapeDtypeStruct, targets: Any) -> None:
    """Numbers, shaped like the outputs."""
    _same_shape(outputs, targets, "linear")
    _finite(targets, "linear")


def half_as_wide(outputs: jax.ShapeDtypeStruct, targets: Any) -> None:
    """Numbers, half as many as there are outputs, of which the other half are their log-variances."""
    *rows, width = outputs.shape
    if width % 2 or tuple(targets.shape) != (*rows, width // 2):
        raise InputError(
            f"the normal output expects targets half as wide as its outputs of shape {tuple(outputs.shape)}, "
            f"got {tuple(targets.shape)}; make the last layer twice as wide as the targets"
        )
    _finite(targets, "normal")


def _finite(targets: Any, name: str) -> None:
    if jnp.issubdtype(targets.dtype, jnp.complexfloating):
        raise InputError(
            f"the {name} output expects real targets, got {targets.dtype}; give their real parts"
        )
    values = _known(targets)
    if values is not None and not np.isfinite(values).all():
        raise InputError(f"the {name} output expects finite targets, got nan or infinity; remove these rows")


def probabilities(outputs: jax.ShapeDtypeStruct, targets: Any) -> None:
    """Numbers from 0 to 1, shaped like the outputs."""
    _same_shape(outputs, targets, "sigmoid")
    values = _known(targets)
    if values is not None and not ((values >= 0) & (values <= 1)).all():
        raise InputError(
            f"the sigmoid output expects targets from 0 to 1, got {_outside(values)}; rescale the targets"
        )


def classes(outputs: jax.ShapeDtypeStruct, targets: Any) -> None:
    """Class numbers, one axis fewer than the outputs, or rows of probabilities shaped like the outputs."""
    count = outputs.shape[-1]
    if jnp.issubdtype(targets.dtype, jnp.integer):
        if tuple(targets.shape) != tuple(outputs.shape[:-1]):
            raise InputError(
                f"the softmax output expects one class number per row, of shape {outputs.shape[:-1]}, "
                f"got {tuple(targets.shape)}; give one-hot rows as floats"
            )
        values = _known(targets)
        if values is not None and values.size and not (values.min() >= 0 and values.max() < count):
            found = values[(values < 0) | (values >= count)].flat[0]
            raise InputError(
                f"the softmax output of {count} classes expects labels 0 to {count - 1}, got {found}; "
                "renumber the labels or widen the last layer"
            )
        return
    _same_shape(outputs, targets, "softmax")
    values = _known(targets)
    if values is not None and not ((values >= 0).all() and np.allclose(values.sum(-1), 1, atol=1e-3)):
        raise InputError(
            "the softmax output expects rows of probabilities that sum to one, "
            f"got a row that sums to {values.sum(-1).flat[0]:.4g}; give class numbers as integers"
        )


def _same_shape(outputs: jax.ShapeDtypeStruct, targets: Any, name: str) -> None:
    if tuple(targets.shape) != tuple(outputs.shape):
        raise InputError(
            f"the {name} output expects targets of the outputs' shape {tuple(outputs.shape)}, "
            f"got {tuple(targets.shape)}; make the last layer as wide as the targets"
        )


def _known(targets: Any) -> np.ndarray | None:
    return None if isinstance(targets, jax.core.Tracer | jax.ShapeDtypeStruct) else np.asarray(targets)


def _outside(values: np.ndarray) -> float:
    return float(values[~((values >= 0) & (values <= 1))].flat[0])
