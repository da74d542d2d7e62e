"""The natural gradient as an optax transformation, for any pytree of parameters and any function.

    optimizer = optax.chain(
        natural_gradient(network, softmax(), damping=1e-2),
        optax.clip_by_global_norm(1.0),
        optax.scale_by_learning_rate(0.1),
    )
    updates, state = optimizer.update(gradients, state, parameters, inputs=x)

`network(parameters, inputs)` returns outputs with the rows first, before any activation; the law says
what they mean. The transformation turns a gradient into a direction, (damping I + F)^{-1} gradient, and
leaves sign and rate to the rest of the chain. Every leaf of the parameters is in the metric.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array

from natgrad.core import Model
from natgrad.errors import InputError
from natgrad.layers.outputs import Law, enumerated, linear, natural, sigmoid, softmax
from natgrad.layers.supervised import (
    Network,
    Rows,
    Task,
    check_metric_rows,
    check_outputs,
    check_parameters,
    check_scalar,
    loss,
)
from natgrad.metrics.curvature import Metric, fisher, gauss_newton, hessian, monte_carlo_fisher
from natgrad.metrics.empirical import (
    centred_covariance,
    squared_gradients,
    squared_sums,
    uncentred_covariance,
)
from natgrad.solvers.minres import minres_qlp
from natgrad.solvers.truncated import conjugate_gradient, little_progress, small_residual
from natgrad.solvers.whole import Solve, automatic, dense_solve, dual_solve
from natgrad.updates.lengths import divergence_ball, inverse_time, learning_rate, line_search
from natgrad.updates.reduction import Damping, constant, levenberg_marquardt, scheduled
from natgrad.updates.truncated_newton import (
    Evidence,
    Function,
    Kept,
    Parts,
    advance,
    begin,
    diagonal_preconditioner,
    no_evidence,
)

__all__ = [
    "Law",
    "Parts",
    "automatic",
    "centred_covariance",
    "conjugate_gradient",
    "constant",
    "dense_solve",
    "diagonal_preconditioner",
    "divergence_ball",
    "dual_solve",
    "enumerated",
    "fisher",
    "gauss_newton",
    "hessian",
    "inverse_time",
    "learning_rate",
    "levenberg_marquardt",
    "line_search",
    "linear",
    "little_progress",
    "minres_qlp",
    "monte_carlo_fisher",
    "natural",
    "natural_gradient",
    "scheduled",
    "sigmoid",
    "small_residual",
    "softmax",
    "squared_gradients",
    "squared_sums",
    "uncentred_covariance",
]


class NaturalState(NamedTuple):
    """What the next update needs, and for a reader the evidence of the last one."""

    kept: Kept
    evidence: Evidence


def natural_gradient(
    network: Network,
    law: Law,
    *,
    damping: Damping | float = 1e-2,
    metric: Metric | None = None,
    solve: Solve | None = None,
    parts: Parts | None = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Measure gradients by a metric of the network's outputs.

    Its `update` takes, besides gradients, state and parameters:

        inputs: the rows of the gradient, [row, ...] or a tree of such.
        targets: their targets, for metrics, dampings and lengths that look at the loss.
        metric_inputs, metric_targets: other rows for the metric, labelled or not; `inputs` by default.
        value_fn: the loss as a function of the parameters, in place of -log p of the targets.

    Args:
        network: from (parameters, inputs) to outputs.
        law: what the outputs say about targets.
        damping: a number, `scheduled(...)` or `levenberg_marquardt(...)`.
        metric: `fisher()` by default.
        solve: by default exact where that is small, otherwise 20 conjugate gradients.
        parts: all parts at once, in place of the three above, with lengths, preconditioner and momentum;
            a length other than 1 is multiplied in, and `optax.scale(-1.0)` then completes the chain.
        seed: of the random numbers that some metrics draw.
    """
    task, chosen = Task(network, law), _parts(damping, metric, solve, parts)

    def init(params: Model) -> NaturalState:
        check_parameters(params)
        kept = begin(chosen, params)
        return NaturalState(kept, no_evidence(kept))

    def update(
        updates: Model, state: NaturalState, params: Model | None = None, **extra: Any
    ) -> tuple[Model, NaturalState]:
        rows, value = _arguments(task, updates, params, extra)
        function = Function(params, updates, lambda: value(params), value)
        key = jax.random.fold_in(jax.random.key(seed), state.kept.steps)
        return _with_state(*advance(key, chosen, task, state.kept, function, rows))

    return optax.GradientTransformationExtraArgs(init, update)


def _with_state(step: Model, kept: Kept, evidence: Evidence) -> tuple[Model, NaturalState]:
    return step, NaturalState(kept, evidence)


def _parts(
    damping: Damping | float, metric: Metric | None, solve: Solve | None, parts: Parts | None
) -> Parts:
    if parts is not None:
        if metric is not None or solve is not None:
            raise InputError(
                "natural_gradient takes metric and solve as part of `parts` or apart, got both; give one"
            )
        return parts
    return Parts(
        metric=fisher() if metric is None else metric,
        solve=automatic(conjugate_gradient(20)) if solve is None else solve,
        damping=damping if isinstance(damping, Damping) else constant(damping),
    )


def _arguments(
    task: Task, updates: Model, params: Model | None, extra: dict[str, Any]
) -> tuple[Rows, Callable[[Model], Array]]:
    """The metric's rows and the loss, from what `update` was given."""
    if params is None or extra.get("inputs") is None:
        missing = "parameters" if params is None else "inputs"
        raise InputError(
            f"natural_gradient needs the {missing}; call update(gradients, state, parameters, inputs=...)"
        )
    shapes: list[Any] = [jax.tree.structure(given) for given in (updates, params)]
    if shapes[0] != shapes[1]:
        raise InputError(
            "gradients and parameters must have the same structure; "
            "put no transformation that changes it before natural_gradient"
        )
    check_parameters(params)
    rows = Rows(extra["inputs"], extra.get("targets"))
    outputs = check_outputs(task, params, rows)
    if rows.targets is not None:
        task.law.check(outputs, rows.targets)
    if extra.get("value_fn") is not None:
        check_scalar(extra["value_fn"], params)
    measured = rows
    if extra.get("metric_inputs") is not None:
        measured = Rows(extra["metric_inputs"], extra.get("metric_targets"))
        check_metric_rows(rows, measured)
    return measured, _value(task, rows, extra.get("value_fn"))


def _value(task: Task, rows: Rows, given: Callable[[Model], Array] | None) -> Callable[[Model], Array]:
    if given is not None:
        return given

    def value(parameters: Model) -> Array:
        if rows.targets is None:
            raise InputError(
                "this damping or length looks at the loss; give update targets=... or value_fn=..."
            )
        return loss(task, parameters, rows)

    return value
