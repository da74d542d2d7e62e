"""Truncated Newton and truncated natural gradient: measure, solve approximately, judge, move.

    direction = (damping I + F)^{-1} gradient,    step = -length direction        [revisiting alg. 1]

The parts are chosen apart from each other: metric, solver, damping, length, preconditioner. Momentum is
a warm start: the solver begins at a share of the last direction [martens2010], which is kept
between steps. A step that is not finite is not taken, and counts as one that broke its promise.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad import tree
from natgrad.core import Direction, Estimate, Model
from natgrad.layers.supervised import Labelled, Rows, Task, loss
from natgrad.metrics.curvature import Metric, Operator, fisher, mean_diagonal
from natgrad.metrics.empirical import Diagonal
from natgrad.solvers.truncated import conjugate_gradient
from natgrad.solvers.whole import FAILED, Solution, Solve, System
from natgrad.updates.lengths import Length, learning_rate
from natgrad.updates.reduction import Damping, Line, backtrack, chosen, constant, shifted


class Parts(NamedTuple):
    """What a truncated method is made of; the defaults are the seed's algorithm.

    `relative` measures the damping by the metric's mean diagonal, so that it does not depend on the
    scale of the loss; `momentum` is the share of the last direction at which the solver starts.
    """

    metric: Metric = fisher()
    solve: Solve = conjugate_gradient(20)
    damping: Damping = constant(1e-2)
    length: Length = learning_rate(1.0)
    precondition: "Precondition | None" = None
    momentum: float = 0.0
    relative: bool = False


Precondition = Callable[[PRNGKeyArray, Task, Model, Rows, Array], Callable[[Model], Model]]


class Kept(NamedTuple):
    """For the next step: its number, the damping, and the last direction where it is the start."""

    steps: Int[Array, ""]
    damping: Float[Array, ""]
    direction: Any


class Evidence(NamedTuple):
    """What became of a step: `result` of the solver (see `solvers.whole.SOLVED`), its iterations, and so on.

    `divergence` is the step's length in nats to second order; `ratio` is nan where nobody asked.
    """

    result: Int[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    damping: Float[Array, ""]
    rate: Float[Array, ""]
    ratio: Float[Array, ""]
    divergence: Float[Array, ""]


Value = Callable[[Model], Array]


class Function(NamedTuple):
    """The loss near the parameters: its gradient, and its value before and after a step."""

    parameters: Model
    gradient: Model
    before: Callable[[], Array]
    after: Value


def truncated_newton(task: Task, parts: Parts) -> Direction:
    """The direction, already times its length, for `Labelled` batches; combine with `optax.sgd(1.0)`."""

    def init(key: PRNGKeyArray, model: Model, estimate: Estimate) -> Kept:
        del key, estimate
        return begin(parts, model)

    def apply(
        key: PRNGKeyArray, kept: Kept, model: Model, estimate: Estimate
    ) -> tuple[Model, Kept, Evidence]:
        batch: Labelled = estimate.samples
        after = lambda p: loss(task, p, batch.rows)  # noqa: E731
        function = Function(model, estimate.gradient, lambda: estimate.value, after)
        return advance(key, parts, task, kept, function, batch.measured)

    return Direction(init, apply)


def begin(parts: Parts, parameters: Model) -> Kept:
    """What the first step needs."""
    kind = jax.tree.leaves(parameters)[0].dtype
    last = tree.zeros(parameters) if parts.momentum else ()
    return Kept(jnp.zeros((), jnp.int32), jnp.asarray(parts.damping.start, kind), last)


def advance(
    key: PRNGKeyArray, parts: Parts, task: Task, kept: Kept, function: Function, rows: Rows
) -> tuple[Model, Kept, Evidence]:
    """One step: the metric on `rows`, the solve, the length; returns what is to be subtracted."""
    key_metric, key_scale, key_condition = jax.random.split(key, 3)
    operator = parts.metric(key_metric, task, function.parameters, rows)
    system = _system(parts, task, kept, operator, (key_scale, key_condition), function.parameters, rows)
    guess = tree.scale(parts.momentum, kept.direction) if parts.momentum else None
    solution = _backtracked(parts.solve(system, function.gradient, guess), system, function)
    return judge(parts, kept, system, function, solution)


def judge(
    parts: Parts, kept: Kept, system: System, function: Function, solution: Solution
) -> tuple[Model, Kept, Evidence]:
    """From a solution to a step: its length, whether it keeps its promise, and the next damping."""
    line = line_along(kept.steps, system.damping, function, solution)
    rate = parts.length(line)
    good = (solution.result != FAILED) & jnp.isfinite(rate) & jnp.isfinite(line.slope)
    ratio = jnp.full_like(line.slope, jnp.nan)
    if parts.damping.ratio is not None:
        ratio = parts.damping.ratio(line, rate)
        good = good & jnp.isfinite(ratio)
    damping = parts.damping.renew(kept.steps, kept.damping, jnp.where(good, ratio, jnp.nan))
    nothing = tree.zeros(solution.value)
    direction = tree.select(good, solution.value, nothing)
    step = tree.select(good, tree.scale(rate, solution.value), nothing)
    left = tree.norm(solution.residual) / jnp.maximum(tree.norm(function.gradient), 1e-30)
    judged = (left, system.damping, rate, ratio, 0.5 * rate**2 * line.curvature)
    counts = (solution.result.astype(jnp.int32), solution.iterations.astype(jnp.int32))
    evidence = Evidence(*counts, *(jnp.asarray(value, damping.dtype) for value in judged))
    return step, Kept(kept.steps + 1, damping, direction if parts.momentum else ()), evidence


def no_evidence(kept: Kept) -> Evidence:
    """The evidence before the first step: as shaped as any other."""
    count, nothing = jnp.zeros((), jnp.int32), jnp.full_like(kept.damping, jnp.nan)
    return Evidence(count, count, nothing, nothing, nothing, nothing, nothing)


def line_along(steps: Array, damping: Array, function: Function, solution: Solution) -> Line:
    """The line of a solution x; x^T F x = x^T (g - residual) - damping x^T x needs no further product."""
    x = solution.value
    slope = tree.vdot(function.gradient, x)
    curvature = slope - tree.vdot(x, solution.residual) - damping * tree.vdot(x, x)
    value = lambda rate: function.after(shifted(function.parameters, rate, x))  # noqa: E731
    return Line(steps, function.before, value, slope, curvature)


def _system(
    parts: Parts,
    task: Task,
    kept: Kept,
    operator: Operator,
    keys: tuple[PRNGKeyArray, PRNGKeyArray],
    parameters: Model,
    rows: Rows,
) -> System:
    scale = mean_diagonal(keys[0], operator, parameters) if parts.relative else 1.0
    damping = kept.damping * scale
    if parts.precondition is None:
        return System(operator, damping)
    return System(operator, damping, parts.precondition(keys[1], task, parameters, rows, damping))


def _backtracked(solution: Solution, system: System, function: Function) -> Solution:
    """The best of the iterates kept, if any were; an earlier one needs a product for its residual."""
    if solution.iterates is None:
        return solution
    after = lambda x: function.after(tree.subtract(function.parameters, x))  # noqa: E731
    best, left = backtrack(after, solution.iterates, jnp.asarray(solution.kept))
    fresh = lambda: tree.subtract(function.gradient, system.mv(best))  # noqa: E731
    empty = jnp.asarray(solution.kept) == 0  # the start was already the solution
    value = tree.select(empty, solution.value, best)
    return solution._replace(value=value, residual=chosen(left, fresh, solution.residual))


def diagonal_preconditioner(diagonal: Diagonal, *, exponent: float = 0.75) -> Precondition:
    """M = (diag(U) + damping)^exponent, divided by [martens2010]."""

    def make(
        key: PRNGKeyArray, task: Task, parameters: Model, rows: Rows, damping: Array
    ) -> Callable[[Model], Model]:
        found = diagonal(key, task, parameters, rows)
        inverse = jax.tree.map(lambda leaf: (leaf + damping) ** -exponent, found)
        return lambda v: jax.tree.map(jnp.multiply, inverse, v)

    return make
