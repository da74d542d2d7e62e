"""Methods for networks, each put together of the same parts.

plain               gradient -> any optax optimiser
natural_network     Fisher, conjugate gradients to 1e-4 or 20 iterations, a rate     [revisiting alg. 1]
hessian_free        Gauss-Newton, Martens' stopping rule and back-tracking, preconditioner,
                    Levenberg-Marquardt, line search, warm start                      [martens2010]
krylov_descent      the loss itself minimised in a Krylov subspace                    [vinyals2012]
tonga               the centred covariance of gradients, in sample space              [revisiting eq. 12]
unit_blocks         exact blocks of the Fisher, one per unit of a perceptron
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PRNGKeyArray

from natgrad import tree
from natgrad.core import Algorithm, Direction, Estimate, Model, steepest
from natgrad.errors import InputError
from natgrad.layers.bernoulli import Layer
from natgrad.layers.networks import Activation
from natgrad.layers.networks import perceptron as perceptron_network
from natgrad.layers.outputs import Law
from natgrad.layers.supervised import Labelled, Rows, Task, loss, supervised
from natgrad.metrics.blocks import Blocks
from natgrad.metrics.curvature import Metric, fisher, gauss_newton
from natgrad.metrics.empirical import centred_covariance, squared_gradients
from natgrad.metrics.units import UnitMetric, exact_units
from natgrad.solvers.contract import Factor, Solver
from natgrad.solvers.krylov import conjugate_gradient as unit_gradients
from natgrad.solvers.subspace import Descend, subspace_descent
from natgrad.solvers.truncated import conjugate_gradient, little_progress
from natgrad.solvers.whole import FAILED, System, automatic
from natgrad.updates.descent import descent
from natgrad.updates.lengths import Length, learning_rate, line_search
from natgrad.updates.reduction import Damping, constant, levenberg_marquardt
from natgrad.updates.truncated_newton import Parts, diagonal_preconditioner, truncated_newton


def plain(task: Task, optimizer: optax.GradientTransformation) -> Algorithm:
    """The gradient itself, for comparison: `optax.sgd(0.1)`, `optax.adam(1e-3)`, ..."""
    return descent(supervised(task), steepest(), optimizer)


def truncated(task: Task, parts: Parts) -> Algorithm:
    """Any combination of parts."""
    return descent(supervised(task), truncated_newton(task, parts), optax.sgd(1.0))


def natural_network(
    task: Task,
    *,
    rate: float = 1.0,
    damping: Damping | float = 1e-2,
    metric: Metric | None = None,
    iterations: int = 20,
) -> Algorithm:
    """Truncated Newton natural gradient, the seed's algorithm 1."""
    adapted = damping if isinstance(damping, Damping) else constant(damping)
    solve, length = conjugate_gradient(iterations), learning_rate(rate)
    return truncated(task, Parts(fisher() if metric is None else metric, solve, adapted, length))


def hessian_free(
    task: Task,
    *,
    damping: float = 1.0,
    iterations: int = 250,
    momentum: float = 0.95,
    length: Length | None = None,
) -> Algorithm:
    """Martens' Hessian-Free with its usual settings."""
    return truncated(
        task, hessian_free_parts(damping=damping, iterations=iterations, momentum=momentum, length=length)
    )


def hessian_free_parts(*, damping: float, iterations: int, momentum: float, length: Length | None) -> Parts:
    """What Hessian-Free is made of."""
    return Parts(
        metric=gauss_newton(),
        solve=conjugate_gradient(iterations, stop=little_progress(5e-4), keep=1.3),
        damping=levenberg_marquardt(damping),
        length=line_search() if length is None else length,
        precondition=diagonal_preconditioner(squared_gradients()),
        momentum=momentum,
    )


def tonga(task: Task, *, rate: float = 1.0, damping: float = 0.1, iterations: int = 20) -> Algorithm:
    """Le Roux's natural gradient by the covariance of gradients, solved in the smaller space."""
    solve = automatic(conjugate_gradient(iterations))
    return truncated(task, Parts(centred_covariance(), solve, constant(damping), learning_rate(rate)))


class Spanned(NamedTuple):
    """What subspace descent keeps: the last direction."""

    direction: Model


class SpannedEvidence(NamedTuple):
    """How the small minimisation went."""

    iterations: Int[Array, ""]
    result: Int[Array, ""]


def krylov_descent(task: Task, *, descend: Descend | None = None, metric: Metric | None = None) -> Algorithm:
    """Krylov subspace descent; metric and minimisation both on the metric's rows, which need targets."""
    direction = krylov_direction(task, descend=descend, metric=metric)
    return descent(supervised(task), direction, optax.sgd(1.0))


def krylov_direction(
    task: Task, *, descend: Descend | None = None, metric: Metric | None = None
) -> Direction:
    """The whole step of Krylov subspace descent, as a direction."""
    inner = subspace_descent() if descend is None else descend
    measure = gauss_newton() if metric is None else metric

    def init(key: PRNGKeyArray, model: Model, estimate: Estimate) -> Spanned:
        del key, estimate
        return Spanned(tree.zeros(model))

    def apply(
        key: PRNGKeyArray, kept: Spanned, model: Model, estimate: Estimate
    ) -> tuple[Model, Spanned, SpannedEvidence]:
        rows: Rows = estimate.samples.measured
        system = System(measure(key, task, model, rows), jnp.zeros_like(estimate.value))
        after = lambda step: loss(task, tree.subtract(model, step), rows)  # noqa: E731
        found = inner(system, estimate.gradient, kept.direction, after)
        step = tree.select(found.result != FAILED, found.value, tree.zeros(model))
        return step, Spanned(step), SpannedEvidence(found.iterations, found.result)

    return Direction(init, apply)


def unit_blocks(
    law: Law,
    optimizer: optax.GradientTransformation,
    *,
    activation: Activation = jnp.tanh,
    damping: float = 1e-2,
    metric: UnitMetric | None = None,
    solver: Solver | None = None,
) -> Algorithm:
    """The natural gradient of every unit of a perceptron by itself: no iteration over the whole network."""
    direction = unit_direction(law, activation=activation, damping=damping, metric=metric, solver=solver)
    return descent(supervised(Task(perceptron_network(activation), law)), direction, optimizer)


def unit_direction(
    law: Law,
    *,
    activation: Activation = jnp.tanh,
    damping: float = 1e-2,
    metric: UnitMetric | None = None,
    solver: Solver | None = None,
) -> Direction:
    """The direction of every unit by its own exact block.

    The solver is conjugate gradients by default; it must not call LAPACK, of which several calls side by
    side can wait for each other for ever.
    """
    measure = exact_units() if metric is None else metric
    chosen = unit_gradients(5) if solver is None else solver
    if chosen.lapack:
        raise InputError(
            f"unit blocks are solved without LAPACK, got the {chosen.name} solver; use cg or diagonal"
        )

    def init(key: PRNGKeyArray, model: Model, estimate: Estimate) -> tuple[()]:
        del key, model, estimate
        return ()

    def apply(
        key: PRNGKeyArray, carry: tuple[()], model: Model, estimate: Estimate
    ) -> tuple[Model, tuple[()], tuple[Blocks, ...]]:
        batch: Labelled = estimate.samples
        inputs = batch.measured.inputs
        blocks = measure(key, law, activation, model, inputs.reshape(inputs.shape[0], -1))

        def prepared(block: Blocks, g: Layer) -> Factor:
            return chosen.prepare(block, jnp.full_like(g.bias, damping))

        gradient = estimate.gradient
        solved = chosen.solve(tree.map_layers(prepared, blocks, gradient), gradient)
        return tuple(solution.value for solution in solved), carry, blocks

    return Direction(init, apply)
