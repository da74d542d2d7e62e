"""Methods of networks by the names of a config: a line of `DIRECTIONS` each, put together from `updates`.

The loss, the optimizer and the refusal of steps that are not finite are those of every method.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from natgrad.core import Algorithm, Direction, Pace, Solver
from natgrad.layers.perceptron import Activation
from natgrad.layers.task import Task, supervised
from natgrad.metrics.curvature import TaskMetric, fisher, monte_carlo_fisher
from natgrad.metrics.empirical import centered_covariance
from natgrad.metrics.layer_blocks import kronecker_blocks
from natgrad.metrics.units import exact_units, sampled_units
from natgrad.models.network.presets import (
    hessian_free_parts,
    krylov_direction,
    unit_direction,
    whole_direction,
)
from natgrad.solvers.cost import automatic
from natgrad.solvers.diagonal import diagonal
from natgrad.solvers.layer_blocks import factored_solve
from natgrad.solvers.minres import minres_qlp
from natgrad.solvers.subspace import subspace_descent
from natgrad.solvers.truncated import conjugate_gradient
from natgrad.solvers.unit_cg import unit_conjugate_gradient as unit_gradients
from natgrad.solvers.units import UnitSolver
from natgrad.solvers.whole import dense_solve, dual_solve
from natgrad.updates.damping import constant, levenberg_marquardt
from natgrad.updates.descent import descent
from natgrad.updates.first_order import downhill, optimizer_of, rate_schedule, steepest
from natgrad.updates.kept import drift_of
from natgrad.updates.lengths import divergence_ball, learning_rate, line_search
from natgrad.updates.natural import Options

ACTIVATIONS: dict[str, Activation] = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "relu": jax.nn.relu}

_SOLVERS: dict[str, Callable[[int], Solver]] = {
    "cg": conjugate_gradient,
    "minres": minres_qlp,
    "direct": lambda iterations: dense_solve(),
    "dual": lambda iterations: dual_solve(),
}
UNIT_SOLVERS: dict[str, Callable[[int], UnitSolver]] = {
    "auto": unit_gradients,
    "cg": unit_gradients,
    "diagonal": lambda iterations: diagonal(),
}


def _options(settings: Any, rate: optax.Schedule, **others: Any) -> Options:
    """Damping, a rate or a divergence up to which a direction is followed, and how long a metric is kept."""
    chosen = settings.metric
    length = learning_rate(rate) if settings.optimizer.name == "sgd" else None
    adapt = levenberg_marquardt if chosen.adaptive else constant
    return Options(
        damping=adapt(chosen.damping),
        length=divergence_ball(chosen.kl_radius, longest=length) if chosen.kl_radius else length,
        refresh=chosen.refresh,
        drift=drift_of(chosen, rate),
        relative=chosen.relative,
        **others,
    )


def _whole(metric: TaskMetric, usual: Solver, settings: Any, task: Task, rate: optax.Schedule) -> Direction:
    """A system of the whole network."""
    chosen = settings.metric
    solver = usual if chosen.solver == "auto" else _SOLVERS[chosen.solver](chosen.iterations)
    return whole_direction(task, metric, solver, _options(settings, rate, warm_start=chosen.warm_start))


def _natural(settings: Any, task: Task, rate: optax.Schedule) -> Direction:
    chosen = settings.metric
    sampled = partial(monte_carlo_fisher, chosen.drawn) if chosen.drawn else fisher
    metric = sampled(rows_at_once=chosen.rows_at_once)
    return _whole(metric, conjugate_gradient(chosen.iterations), settings, task, rate)


def _tonga(settings: Any, task: Task, rate: optax.Schedule) -> Direction:
    chosen = settings.metric
    usual = automatic(conjugate_gradient(chosen.iterations))
    return _whole(centered_covariance(rows_at_once=chosen.rows_at_once), usual, settings, task, rate)


def _hessian_free(settings: Any, task: Task, rate: optax.Schedule) -> Direction:
    chosen = settings.metric
    options = Options(
        damping=levenberg_marquardt(chosen.damping),
        length=line_search(float(rate(0))),
        warm_start=chosen.warm_start,
    )
    return whole_direction(task, *hessian_free_parts(chosen.iterations), options)


def _krylov(settings: Any, task: Task, rate: optax.Schedule) -> Direction:
    del rate
    return krylov_direction(task, descend=subspace_descent(settings.metric.iterations))


def _units(settings: Any, task: Task, rate: optax.Schedule) -> Direction:
    chosen, activation = settings.metric, ACTIVATIONS[settings.model.activation]
    metric = sampled_units(activation, chosen.drawn) if chosen.drawn else exact_units(activation)
    kept = {"refresh": chosen.refresh, "drift": drift_of(chosen, rate)}
    options = Options(damping=constant(chosen.damping), **kept)
    return unit_direction(task, metric, UNIT_SOLVERS[chosen.solver](chosen.iterations), options)


def _kfac(settings: Any, task: Task, rate: optax.Schedule) -> Direction:
    chosen = settings.metric
    itself = Task(inspect.unwrap(task.network), task.output)  # layers are not found in what is sent at once
    options = _options(settings, rate, gradient_decay=chosen.gradient_decay)
    return whole_direction(itself, kronecker_blocks(decay=chosen.average), factored_solve(), options)


DIRECTIONS: dict[str, Callable[[Any, Task, optax.Schedule], Direction]] = {
    "natural": _natural,
    "hessian-free": _hessian_free,
    "krylov": _krylov,
    "tonga": _tonga,
    "units": _units,
    "kfac": _kfac,
    "plain": lambda settings, task, rate: steepest(),
}


def algorithm(settings: Any, task: Task, stage: Any, pace: Pace) -> Algorithm:
    """The training method of a config at a pace; networks have one stage only."""
    del stage
    optimizer, rate = optimizer_of(settings.optimizer), rate_schedule(settings.optimizer, pace)
    direction = DIRECTIONS[settings.method](settings, task, rate)
    average = settings.evaluation.average
    return descent(supervised(task), direction, optimizer, scale=downhill(rate), average=average)
