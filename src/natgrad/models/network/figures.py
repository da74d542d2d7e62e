"""How well a network says its targets: their likelihood, and the error that people count.

`test_ll` is the mean of log p(target | input) over the test rows, in nats: the same column as the likelihood
of other models, though of another thing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natgrad.core import Model
from natgrad.devices import everywhere
from natgrad.layers.outputs import per_row
from natgrad.layers.task import Examples, Task

AT_ONCE = 500  # rows of a forward pass

Error = Callable[[Array, Array], Float[Array, " row"]]


class ErrorMeasure(NamedTuple):
    """An error of outputs against targets by its name, and the loss of a network that knows nothing."""

    name: str
    error: Error
    ignorance: Callable[[int], float]

    def measure(self, task: Task, model: Model, *, valid: Examples, test: Examples) -> dict[str, Any]:
        """One row's worth of measurements."""
        logs, wrong = row_scores(task, self.error, model, valid)
        row = {"valid_loss": -logs.mean(), "valid_ll": logs.mean(), f"valid_{self.name}": wrong.mean()}
        logs, wrong = row_scores(task, self.error, model, test)
        row |= {"test_loss": -logs.mean(), "test_ll": logs.mean(), f"test_{self.name}": wrong.mean()}
        row["test_ll_se"] = logs.std(ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else np.nan
        return {name: float(value) for name, value in row.items()}


def row_scores(task: Task, error: Error, model: Model, rows: Examples) -> tuple[np.ndarray, np.ndarray]:
    """log p(target | input) and the error of every row, summed up in float64 later."""
    found = _row_scores(task, error, model, rows)
    first, second = everywhere(found)
    return np.asarray(first, np.float64), np.asarray(second, np.float64)


def misclassified(outputs: Array, classes: Array) -> Float[Array, " row"]:
    """1 where the largest output is another than the class."""
    return (jnp.argmax(outputs, axis=-1).astype(classes.dtype) != classes).astype(outputs.dtype)


def squared(mean: Callable[[Array], Array]) -> Error:
    """The squared distance between a target and its mean given the outputs, summed over a row."""
    return lambda outputs, targets: per_row((mean(outputs) - targets) ** 2)


@partial(jax.jit, static_argnums=(0, 1))
def _row_scores(task: Task, error: Error, model: Model, rows: Examples) -> tuple[Array, Array]:
    def one(row: Examples) -> tuple[Array, Array]:
        single = jax.tree.map(lambda leaf: leaf[None], row)
        outputs = task.network(model, single.inputs)
        return task.output.log_prob(outputs, single.targets)[0], error(outputs, single.targets)[0]

    return jax.lax.map(one, rows, batch_size=min(AT_ONCE, rows.number))
