"""Methods for networks, each put together of the same parts.

plain               gradient -> any optax optimizer
natural_network     Fisher, conjugate gradients to 1e-4 or 20 iterations, a rate     [revisiting alg. 1]
hessian_free        Gauss-Newton, Martens' stopping rule and back-tracking, preconditioner,
                    Levenberg-Marquardt, line search, warm start                      [martens2010]
krylov_descent      the loss itself minimized in a Krylov subspace                    [vinyals2012]
tonga               the centered covariance of gradients, in sample space              [revisiting eq. 12]
unit_blocks         exact blocks of the Fisher, one per unit of a perceptron
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PRNGKeyArray

from natgrad import tree
from natgrad.core import Algorithm, Direction, Estimate, Model, Solver, Step
from natgrad.layers.outputs import Output
from natgrad.layers.perceptron import Activation
from natgrad.layers.perceptron import perceptron as perceptron_network
from natgrad.layers.task import Task, supervised, task_loss
from natgrad.metrics.curvature import TaskMetric, fisher, gauss_newton
from natgrad.metrics.empirical import centered_covariance, squared_gradients, with_diagonal
from natgrad.metrics.units import exact_units
from natgrad.solvers.choice import always
from natgrad.solvers.cost import automatic
from natgrad.solvers.results import FAILED
from natgrad.solvers.subspace import Descend, subspace_descent
from natgrad.solvers.truncated import conjugate_gradient, little_progress
from natgrad.solvers.unit_cg import unit_conjugate_gradient as unit_gradients
from natgrad.solvers.units import UnitSolver, per_layer
from natgrad.solvers.whole import System
from natgrad.updates.damping import Damping, constant, levenberg_marquardt
from natgrad.updates.descent import descent
from natgrad.updates.describe import of_layers, of_system
from natgrad.updates.first_order import steepest
from natgrad.updates.lengths import Length, learning_rate, line_search
from natgrad.updates.natural import Options, natural


def plain(task: Task, optimizer: optax.GradientTransformation) -> Algorithm:
    """The gradient itself, for comparison: `optax.sgd(0.1)`, `optax.adam(1e-3)`, ..."""
    return descent(supervised(task), steepest(), optimizer)


def whole_direction(task: Task, metric: TaskMetric, solver: Solver, options: Options) -> Direction:
    """The natural direction of all parameters at once."""
    return natural(metric(task), solver, options, revalue=supervised(task).revalue, describe=of_system)


def truncated(task: Task, metric: TaskMetric, solver: Solver, options: Options) -> Algorithm:
    """Any combination of parts; the options need a length."""
    return descent(supervised(task), whole_direction(task, metric, solver, options), optax.identity())


def natural_network(
    task: Task,
    *,
    rate: float = 1.0,
    damping: Damping | float = 1e-2,
    metric: TaskMetric | None = None,
    iterations: int = 20,
) -> Algorithm:
    """Truncated Newton natural gradient [revisiting alg. 1]."""
    adapted = damping if isinstance(damping, Damping) else constant(damping)
    options = Options(damping=adapted, length=learning_rate(rate))
    return truncated(task, fisher() if metric is None else metric, conjugate_gradient(iterations), options)


def hessian_free(
    task: Task,
    *,
    damping: float = 1.0,
    iterations: int = 250,
    warm_start: float = 0.95,
    length: Length | None = None,
) -> Algorithm:
    """Martens' Hessian-Free with its usual settings."""
    options = Options(
        damping=levenberg_marquardt(damping),
        length=line_search() if length is None else length,
        warm_start=warm_start,
    )
    return truncated(task, *hessian_free_parts(iterations), options)


def hessian_free_parts(iterations: int) -> tuple[TaskMetric, Solver]:
    """The metric and the solver of Hessian-Free [martens2010]."""
    solver = conjugate_gradient(iterations, stop=little_progress(5e-4), keep=1.3, precondition=0.75)
    return with_diagonal(gauss_newton(), squared_gradients()), solver


def tonga(task: Task, *, rate: float = 1.0, damping: float = 0.1, iterations: int = 20) -> Algorithm:
    """Le Roux's natural gradient by the covariance of gradients, solved in the smaller space."""
    options = Options(damping=constant(damping), length=learning_rate(rate))
    return truncated(task, centered_covariance(), automatic(conjugate_gradient(iterations)), options)


class Spanned(NamedTuple):
    """How the small minimization of subspace descent went."""

    iterations: Int[Array, ""]
    result: Int[Array, ""]


def krylov_descent(
    task: Task, *, descend: Descend | None = None, metric: TaskMetric | None = None
) -> Algorithm:
    """Krylov subspace descent; metric and minimization both on the metric's rows, which need targets."""
    direction = krylov_direction(task, descend=descend, metric=metric)
    return descent(supervised(task), direction, optax.identity(), scale=lambda steps: -1.0)


def krylov_direction(
    task: Task, *, descend: Descend | None = None, metric: TaskMetric | None = None
) -> Direction:
    """The whole step of Krylov subspace descent, as a direction; the last one is carried."""
    inner = subspace_descent() if descend is None else descend
    task_metric = (gauss_newton() if metric is None else metric)(task)

    def init(key: PRNGKeyArray, model: Model, estimate: Estimate) -> Model:
        del key, estimate
        return tree.zeros(model)

    def apply(key: PRNGKeyArray, last: Model, model: Model, estimate: Estimate) -> Step:
        operator, _ = task_metric.measure(key, (), model, estimate.samples)
        system = System(operator.bind(), jnp.zeros_like(estimate.value))
        rows = estimate.samples.metric_rows
        after = lambda step: task_loss(task, tree.subtract(model, step), rows)  # noqa: E731
        found = inner(system, estimate.gradient, last, after)
        evidence = Spanned(found.iterations, found.result)
        return Step(found.value, found.value, evidence, sound=found.result != FAILED)

    return Direction(init, apply)


def unit_blocks(
    output: Output,
    optimizer: optax.GradientTransformation,
    *,
    activation: Activation = jnp.tanh,
    damping: float = 1e-2,
    metric: TaskMetric | None = None,
    solver: UnitSolver | None = None,
) -> Algorithm:
    """The natural gradient of every unit of a perceptron by itself: no iteration over the whole network."""
    task = Task(perceptron_network(activation), output)
    blocks = exact_units(activation) if metric is None else metric
    chosen = unit_gradients(5) if solver is None else solver
    direction = unit_direction(task, blocks, chosen, Options(damping=constant(damping)))
    return descent(supervised(task), direction, optimizer)


def unit_direction(task: Task, metric: TaskMetric, solver: UnitSolver, options: Options) -> Direction:
    """The direction of every unit by its own block."""
    return natural(metric(task), per_layer(always(solver)), options, describe=of_layers(gain=False))
