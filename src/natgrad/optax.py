"""The natural gradient as an optax transformation, for any pytree of parameters and any function.

    optimizer = natgrad.optax.linked(
        natural_gradient(network, softmax(), damping=1e-2),
        optax.clip_by_global_norm(1.0),
        optax.scale_by_learning_rate(0.1),
    )
    updates, state = optimizer.update(gradients, state, parameters, inputs=x)

`network(parameters, inputs)` returns outputs with the rows first, before any activation; the output says
what they mean. The transformation turns a gradient into a direction, (damping I + F)^{-1} gradient, and
leaves sign and rate to the rest of the chain. Every leaf of the parameters is in the metric. `linked` is
optax's chain, with `state.evidence` of the last update; in a chain of optax's own it is `state[0].evidence`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import optax
from jaxtyping import Array, PRNGKeyArray

from natgrad.core import Metric, Model, Solver
from natgrad.errors import InputError
from natgrad.layers.outputs import Output, enumerated, exponential_family, linear, sigmoid, softmax
from natgrad.layers.task import (
    Examples,
    Network,
    Task,
    TaskBatch,
)
from natgrad.metrics.curvature import TaskMetric, fisher, gauss_newton, hessian, monte_carlo_fisher
from natgrad.metrics.empirical import (
    centered_covariance,
    squared_gradients,
    squared_sums,
    uncentered_covariance,
    with_diagonal,
)
from natgrad.metrics.first_look import squares_by_rows
from natgrad.metrics.layer_blocks import exact_blocks, kronecker_blocks
from natgrad.metrics.layer_report import layer_report
from natgrad.metrics.residuals import Residuals, half_square, residual_metric
from natgrad.solvers.correction import accelerated, anchored
from natgrad.solvers.cost import automatic
from natgrad.solvers.layer_blocks import block_solve, factored_solve
from natgrad.solvers.minres import minres_qlp
from natgrad.solvers.nystrom import nystrom_gradient
from natgrad.solvers.rows import cholesky_solve, qr_solve
from natgrad.solvers.truncated import conjugate_gradient, little_progress, small_residual
from natgrad.solvers.whole import dense_solve, dual_solve
from natgrad.updates.arguments import check_alike, task_arguments
from natgrad.updates.damping import constant, delayed_gratification, levenberg_marquardt, scheduled
from natgrad.updates.first_order import inverse_time
from natgrad.updates.lengths import divergence_ball, learning_rate, line_search
from natgrad.updates.linked import linked
from natgrad.updates.natural import Options
from natgrad.updates.transformation import DampingLike, damping_from, measured, options_of

__all__ = [
    "Options",
    "Output",
    "accelerated",
    "anchored",
    "automatic",
    "block_solve",
    "centered_covariance",
    "cholesky_solve",
    "conjugate_gradient",
    "constant",
    "delayed_gratification",
    "dense_solve",
    "divergence_ball",
    "dual_solve",
    "enumerated",
    "exact_blocks",
    "exponential_family",
    "factored_solve",
    "fisher",
    "gauss_newton",
    "hessian",
    "inverse_time",
    "kronecker_blocks",
    "layer_report",
    "layerwise_gradient",
    "learning_rate",
    "levenberg_marquardt",
    "line_search",
    "linear",
    "linked",
    "little_progress",
    "minres_qlp",
    "monte_carlo_fisher",
    "natural_gradient",
    "nystrom_gradient",
    "qr_solve",
    "scale_by_gauss_newton",
    "scheduled",
    "sigmoid",
    "small_residual",
    "softmax",
    "squared_gradients",
    "squared_sums",
    "uncentered_covariance",
    "with_diagonal",
]


def natural_gradient(  # noqa: PLR0913 - every choice of the transformation
    network: Network,
    output: Output,
    *,
    damping: DampingLike | None = None,
    metric: TaskMetric | None = None,
    solver: Solver | None = None,
    options: Options | None = None,
    example: Any = None,
    example_targets: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Measure gradients by a metric of the network's outputs.

    Its `update` takes, besides gradients, state and parameters:

        inputs: the rows of the gradient, [row, ...] or a tree of such.
        targets: their targets, for metrics, dampings and lengths that look at the loss.
        metric_inputs, metric_targets: other rows for the metric, labeled or not; `inputs` by default.
        value_fn: the loss as a function of the parameters, in place of -log p of the targets.

    Args:
        network: from (parameters, inputs) to outputs.
        output: what the outputs say about targets.
        damping: a number (0.01 by default), an optax schedule, or `levenberg_marquardt(...)`.
        metric: `fisher()` by default.
        solver: by default exact where that is small, otherwise 20 conjugate gradients.
        options: damping together with lengths, warm start and so on; a length is multiplied in (1 by
            default), and `optax.scale(-1.0)` then completes the chain.
        example: inputs of which only the shapes count; needed where a metric is kept for several steps
            (`Options(refresh=20)`) or averaged. Give as many rows as in a step, unless for blocks of layers.
        example_targets: their targets, for a metric that looks at targets.
        seed: of the random numbers that some metrics draw.
    """
    task, kept = Task(network, output), example is not None
    chosen = options_of(damping, options, "natural_gradient", "give example=..., or use 1", kept=kept)
    task_metric = (fisher() if metric is None else metric)(task)
    solved = automatic(conjugate_gradient(20)) if solver is None else solver
    like = None if example is None else TaskBatch(Examples(example, example_targets))
    return measured(task_metric, solved, chosen, partial(task_arguments, task), seed, like)


def layerwise_gradient(
    network: Network,
    output: Output,
    example: Any,
    *,
    damping: DampingLike | None = None,
    refresh: int = 20,
    decay: float = 0.8,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Measure gradients by the blocks of a network's layers (K-FAC), renewed every `refresh` steps.

    Dense and convolutional layers are found in the network itself; parameters that belong to none have the
    diagonal, and a warning says which. It is `natural_gradient` of `kronecker_blocks` and `factored_solve`.

    Args:
        network: from (parameters, inputs) to outputs; rows must not influence each other.
        output: what the outputs say about targets.
        example: inputs of which only the shapes count.
        damping: 0.1 by default, otherwise as for `natural_gradient`.
        refresh: how many steps the inverses serve.
        decay: of the averages, from one renewal to the next.
        seed: of the targets that are drawn.
    """
    strength = damping_from(0.1 if damping is None else damping)
    return natural_gradient(
        network,
        output,
        metric=kronecker_blocks(decay=decay),
        solver=factored_solve(),
        options=Options(damping=strength, refresh=refresh),
        example=example,
        seed=seed,
    )


def scale_by_gauss_newton(
    residuals: Residuals,
    *,
    weights: Any = 1.0,
    by_row: bool | None = None,
    damping: DampingLike | None = None,
    solver: Solver | None = None,
    options: Options | None = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Measure gradients of a least-squares loss by the Gauss-Newton matrix of its residuals.

    The loss is (1/2) sum_k weight_k mean(r_k^2) over the arrays of residuals. `update` takes, besides
    gradients, state and parameters, `batch`, which is handed to the residuals. `natgrad.least_squares` is
    the whole loop for a batch that stays the same.

    Args:
        residuals: from (parameters, batch) to an array of residuals, or any tree of them.
        weights: one for each array of residuals, or one number.
        by_row: whether a row of an array of residuals depends on the same row of its part of the batch only,
            which makes most steps many times faster; the batch must then be laid out as the residuals are. By
            default that is tried once, with made-up numbers.
        damping: a number (0.01 by default), an optax schedule, `levenberg_marquardt(...)` and so on.
        solver: by default exact at the price of 3,000 products or less, otherwise 20 conjugate gradients.
        options: as for `natural_gradient`.
        seed: of the random numbers of a relative damping.
    """
    chosen = options_of(damping, options, "scale_by_gauss_newton")
    problem_for = squares_by_rows(residuals, weights, by_row)

    def measure(key: PRNGKeyArray, carry: Any, model: Model, batch: Any) -> Any:
        return residual_metric(problem_for(model, batch)).measure(key, carry, model, batch)

    solved = automatic(conjugate_gradient(20), products=3000.0) if solver is None else solver

    def read(
        updates: Model, params: Model | None, extra: dict[str, Any]
    ) -> tuple[Any, Callable[[Model], Array]]:
        if params is None or "batch" not in extra:
            missing = "parameters" if params is None else "batch"
            raise InputError(
                f"scale_by_gauss_newton needs the {missing}; "
                "call update(gradients, state, parameters, batch=...)"
            )
        check_alike(updates, params, "scale_by_gauss_newton")
        batch, revalue = extra["batch"], half_square(problem_for(params, extra["batch"])).revalue
        assert revalue is not None
        return batch, lambda model: revalue(model, batch)

    return measured(Metric(lambda key, model, batch: (), measure), solved, chosen, read, seed)
