"""What the `update` of an optax transformation is given, checked, and made a batch and a loss."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array

from natgrad.core import Model
from natgrad.errors import InputError
from natgrad.layers.task import (
    Examples,
    Task,
    TaskBatch,
    check_metric_rows,
    check_outputs,
    check_parameters,
    check_scalar,
    task_loss,
)


def check_alike(updates: Model, params: Model, name: str) -> None:
    """Gradients must be those of the parameters, leaf by leaf."""
    shapes: list[Any] = [jax.tree.structure(given) for given in (updates, params)]
    if shapes[0] != shapes[1]:
        raise InputError(
            "gradients and parameters must have the same structure; "
            f"put no transformation that changes it before {name}"
        )
    check_parameters(params)


def task_arguments(
    task: Task, updates: Model, params: Model | None, extra: dict[str, Any]
) -> tuple[TaskBatch, Callable[[Model], Array]]:
    """The rows of gradient and metric, and the loss, from what `update` was given."""
    if params is None or extra.get("inputs") is None:
        missing = "parameters" if params is None else "inputs"
        raise InputError(
            f"natural_gradient needs the {missing}; call update(gradients, state, parameters, inputs=...)"
        )
    check_alike(updates, params, "natural_gradient")
    rows = Examples(extra["inputs"], extra.get("targets"))
    outputs = check_outputs(task, params, rows)
    if rows.targets is not None:
        task.output.check(outputs, rows.targets)
    if extra.get("value_fn") is not None:
        check_scalar(extra["value_fn"], params)
    others = None
    if extra.get("metric_inputs") is not None:
        others = Examples(extra["metric_inputs"], extra.get("metric_targets"))
        check_metric_rows(rows, others)
    return TaskBatch(rows, others), _value(task, rows, extra.get("value_fn"))


def _value(task: Task, rows: Examples, given: Callable[[Model], Array] | None) -> Callable[[Model], Array]:
    if given is not None:
        return given

    def value(parameters: Model) -> Array:
        if rows.targets is None:
            raise InputError(
                "this damping or length looks at the loss; give update targets=... or value_fn=..."
            )
        return task_loss(task, parameters, rows)

    return value
