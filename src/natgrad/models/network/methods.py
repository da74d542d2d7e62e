"""Methods of networks by the names of a config: a line of `DIRECTIONS` each, put together from `updates`.

The loss, the optimiser and the refusal of steps that are not finite are those of every method.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from natgrad import config
from natgrad.core import Algorithm, Direction, steepest
from natgrad.layers.networks import Activation
from natgrad.layers.supervised import Task, supervised
from natgrad.metrics.curvature import Metric, fisher, monte_carlo_fisher
from natgrad.metrics.empirical import centred_covariance
from natgrad.metrics.units import exact_units, sampled_units
from natgrad.models.network.presets import hessian_free_parts, krylov_direction, unit_direction
from natgrad.solvers.contract import Solver
from natgrad.solvers.diagonal import diagonal
from natgrad.solvers.krylov import conjugate_gradient as unit_gradients
from natgrad.solvers.minres import minres_qlp
from natgrad.solvers.subspace import subspace_descent
from natgrad.solvers.truncated import conjugate_gradient
from natgrad.solvers.whole import Solve, automatic, dense_solve, dual_solve
from natgrad.updates.descent import descent
from natgrad.updates.first_order import OPTIMIZERS, SCHEDULES, downhill
from natgrad.updates.lengths import divergence_ball, learning_rate, line_search
from natgrad.updates.reduction import constant, levenberg_marquardt
from natgrad.updates.truncated_newton import Parts, truncated_newton

ACTIVATIONS: dict[str, Activation] = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "relu": jax.nn.relu}


class Given(NamedTuple):
    """What a direction is made for: the task, and the learning rate as a function of the step."""

    task: Task
    rate: optax.Schedule


SOLVERS: dict[str, Callable[[int], Solve]] = {
    "cg": conjugate_gradient,
    "minres": minres_qlp,
    "direct": lambda iterations: dense_solve(),
    "dual": lambda iterations: dual_solve(),
}
UNIT_SOLVERS: dict[str, Callable[[int], Solver]] = {
    "auto": unit_gradients,
    "cg": unit_gradients,
    "diagonal": lambda iterations: diagonal(),
}


def _measured(metric: Metric, usual: Solve, settings: config.Config, given: Given) -> Direction:
    """A whole-network system, solved and taken a rate's length (or a divergence's) along."""
    chosen = settings.metric
    rate = learning_rate(given.rate if settings.optimizer.name == "sgd" else 1.0)
    adapt = levenberg_marquardt if chosen.adaptive else constant
    return truncated_newton(
        given.task,
        Parts(
            metric=metric,
            solve=usual if chosen.solver == "auto" else SOLVERS[chosen.solver](chosen.iterations),
            damping=adapt(chosen.damping),
            length=divergence_ball(chosen.kl_radius, longest=rate) if chosen.kl_radius else rate,
            momentum=chosen.momentum,
            relative=chosen.relative,
        ),
    )


def _natural(settings: config.Config, given: Given) -> Direction:
    chosen = settings.metric
    sampled = partial(monte_carlo_fisher, chosen.drawn) if chosen.drawn else fisher
    return _measured(sampled(chunk=chosen.chunk), conjugate_gradient(chosen.iterations), settings, given)


def _tonga(settings: config.Config, given: Given) -> Direction:
    chosen = settings.metric
    usual = automatic(conjugate_gradient(chosen.iterations))
    return _measured(centred_covariance(chunk=chosen.chunk), usual, settings, given)


def _hessian_free(settings: config.Config, given: Given) -> Direction:
    chosen = settings.metric
    search = line_search(settings.optimizer.learning_rate)
    parts = hessian_free_parts(
        damping=chosen.damping, iterations=chosen.iterations, momentum=chosen.momentum, length=search
    )
    return truncated_newton(given.task, parts)


def _krylov(settings: config.Config, given: Given) -> Direction:
    return krylov_direction(given.task, descend=subspace_descent(settings.metric.iterations))


def _units(settings: config.Config, given: Given) -> Direction:
    chosen = settings.metric
    return unit_direction(
        given.task.law,
        activation=ACTIVATIONS[settings.model.activation or "tanh"],
        damping=chosen.damping,
        metric=sampled_units(chosen.drawn) if chosen.drawn else exact_units(),
        solver=UNIT_SOLVERS[chosen.solver](chosen.iterations),
    )


DIRECTIONS: dict[str, Callable[[config.Config, Given], Direction]] = {
    "natural": _natural,
    "hessian-free": _hessian_free,
    "krylov": _krylov,
    "tonga": _tonga,
    "units": _units,
    "plain": lambda settings, given: steepest(),
}
WHOLE = ("natural", "hessian-free", "tonga")  # their directions have their length already


def algorithm(settings: config.Config, network: Task, steps: int) -> Algorithm:
    """The training method of a config, for a training of that many steps."""
    chosen = settings.optimizer
    length = chosen.decay_steps or max(steps, 1)
    rate = SCHEDULES[chosen.schedule](chosen.learning_rate, length, chosen.final_fraction)
    direction = DIRECTIONS[settings.method](settings, Given(network, rate))
    measured = settings.method in WHOLE and chosen.name == "sgd"
    optimizer = OPTIMIZERS[chosen.name](chosen.momentum)
    scale = downhill(SCHEDULES["constant"](1.0, 0, 1.0) if measured else rate)
    return descent(
        supervised(network), direction, optimizer, scale=scale, average=settings.evaluation.average
    )
