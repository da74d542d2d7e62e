"""The natural direction: measure the gradient by a metric, solve, and say how far to go.

    direction = (damping I + F)^{-1} gradient,    step = -length direction        [revisiting alg. 1]

With `gain` the direction is (1 + damping) times that [nrws eq. 31], so that a large damping gives plain
descent and a small one the natural gradient. A metric and its factor may be kept for `refresh` steps, or
until the model has moved (`natgrad.updates.kept`); the damping is fixed while they are. With `gradient_decay`
it is the *gradient* that is averaged over steps, and then measured by the present metric: averaging
directions would add vectors of different tangent spaces as if they were one. With `warm_start` the solver
begins at a share of the last direction [martens2010].
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad import tree
from natgrad.core import (
    Direction,
    Estimate,
    Info,
    Metric,
    Model,
    Numbers,
    Samples,
    Solution,
    Solver,
    Step,
)
from natgrad.metrics.layered import gained
from natgrad.solvers.results import FAILED
from natgrad.updates.damping import Damping, constant
from natgrad.updates.kept import Drift, Kept, first_travel, keep_metric, renewed, traveled, with_age
from natgrad.updates.lengths import Length
from natgrad.updates.parts import WHOLE, Part
from natgrad.updates.reduction import Line, backtrack

Revalue = Callable[[Model, Samples], Float[Array, ""]]


class Options(NamedTuple):
    """What a natural direction is made of beside its metric and its solver.

    Attributes:
        damping: how strong it is.
        length: how far to go; None leaves that to the learning rate of the whole step.
        gain: whether the direction is multiplied by 1 + damping.
        refresh: K, how many steps a metric serves; it is measured only when it is renewed.
        drift: how far the model may move before a metric that is kept is renewed; None: as far as it likes.
        relative: measure the damping by the metric's mean diagonal, so that it has no scale of its own.
        gradient_decay: the memory of an average of the gradient.
        warm_start: the share of the last direction at which the solver starts.
    """

    damping: Damping = constant(1e-2)
    length: Length | None = None
    gain: bool = False
    refresh: int = 1
    drift: Drift | None = None
    relative: bool = False
    gradient_decay: float = 0.0
    warm_start: float = 0.0


class Evidence(NamedTuple):
    """What became of a step, in numbers; see `natgrad.solvers.results.SOLVED` for `result`.

    `damping` is the present strength; a kept metric was prepared with that of its renewal, and a relative one
    multiplies it by the mean diagonal. `divergence` is the step's length in nats to second order; `rate` and
    `ratio` are nan where nobody asked.
    """

    result: Int[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    damping: Float[Array, ""]
    rate: Float[Array, ""]
    ratio: Float[Array, ""]
    divergence: Float[Array, ""]


class Solved(NamedTuple):
    """A step's evidence, and the system that it solved: the factor with operator and damping, both sides.

    `age` and `travel` are those of the metric, this step included.
    """

    evidence: Evidence
    factor: Any
    right: Model
    curvature: Float[Array, ""]
    age: Int[Array, ""]
    travel: Any


def natural(
    metric: Metric,
    solver: Solver,
    options: Options = Options(),  # noqa: B008
    *,
    revalue: Revalue | None = None,
    part: Part = WHOLE,
    describe: Callable[[Info], Numbers] = lambda info: {},
) -> Direction:
    """The natural direction of a model, or of a part of it.

    Args:
        metric: from the model and what was drawn to the Fisher operator.
        solver: for the damped system.
        options: damping, length, and so on.
        revalue: the objective's; needed where damping or length look at the loss.
        part: which part of the model the direction moves; gradients are of that part only.
        describe: makes numbers of a step whose evidence is a `Solved`.
    """
    if options.damping.ratio is not None and options.length is None:
        raise ValueError("this damping looks at the loss after a step; give the options a length")

    def prepared(keys: Any, kept: Kept, model: Model, estimate: Estimate) -> Kept:
        operator, carry = metric.measure(keys[0], kept.metric, model, estimate.samples)
        strength = options.damping.strength(kept.steps, kept.level)
        damping = tree.scale(strength, operator.mean_diagonal(keys[1])) if options.relative else strength
        factor, after = solver.prepare(operator, damping, estimate.after)
        return kept._replace(factor=factor, metric=carry, after=jnp.asarray(after, kept.level.dtype))

    def init(key: PRNGKeyArray, model: Model, estimate: Estimate) -> Kept:
        kind, zero = jax.tree.leaves(estimate.gradient)[0].dtype, jnp.zeros((), jnp.int32)
        level = jnp.asarray(options.damping.start, kind)
        nothing = tree.zeros(jax.eval_shape(tree.whole, estimate.gradient))
        mean = nothing if options.gradient_decay else ()
        last = nothing if options.warm_start else ()
        carry = metric.init(key, model, estimate.samples)
        kept = Kept(zero, zero, (), jnp.zeros((), kind), carry, level, mean, last)
        if options.refresh == 1:
            return kept
        kept = kept._replace(travel=first_travel(options.drift, kept.after))
        shapes = jax.eval_shape(lambda k, m, e: prepared((k, k), kept, m, e), key, model, estimate)
        return kept._replace(factor=solver.place(tree.zeros(shapes.factor)))

    def apply(key: PRNGKeyArray, kept: Kept, model: Model, estimate: Estimate) -> Step:
        key_metric, key_scale, _ = jax.random.split(key, 3)
        right = estimate.gradient
        if options.gradient_decay:
            right = tree.blend(options.gradient_decay, kept.gradient, tree.whole(right))
        make = lambda: prepared((key_metric, key_scale), kept, model, estimate)  # noqa: E731
        now = make() if options.refresh == 1 else renewed(kept, make, options.drift)
        guess = tree.scale(options.warm_start, kept.direction) if options.warm_start else None
        solution = solver.solve(now.factor, right, guess)
        after = _value_after(revalue, part, model, estimate.samples)
        solution = _backtracked(solution, now.factor, right, after)
        vector, curvature = _gained(options, now.factor, solution)
        slope = tree.vdot(tree.whole(estimate.gradient), vector)
        value = lambda rate: after(tree.scale(rate, vector))  # noqa: E731
        line = Line(kept.steps, lambda: after(tree.zeros(vector)), value, slope, curvature)
        rate = None if options.length is None else options.length(line)
        looked = _looked(options, now)
        ratio, level = _renewed_damping(options.damping, now, line, rate, solution.result == FAILED, looked)
        sound = _sound(options, solution, rate, ratio, looked)
        evidence = _evidence(solution, options, kept, (rate, ratio, curvature))
        travel = traveled(now, options.drift, rate, curvature)
        later = _aged(now._replace(level=level, travel=travel), options, right, vector)
        solved = Solved(evidence, now.factor, right, curvature, now.age, travel)
        return Step(vector, later, solved, rate, now.after, sound)

    return Direction(init, apply, keep_metric, describe if options.refresh == 1 else with_age(describe))


def no_evidence(like: Float[Array, ""]) -> Evidence:
    """The evidence before the first step: as shaped as any other."""
    count, nothing = jnp.zeros((), jnp.int32), jnp.full_like(like, jnp.nan)
    return Evidence(count, count, *(nothing,) * 5)


def _aged(now: Kept, options: Options, right: Model, vector: Model) -> Kept:
    """A step later; what serves one step only is not kept."""
    return now._replace(
        steps=now.steps + 1,
        age=(now.age + 1) % options.refresh,
        factor=() if options.refresh == 1 else now.factor,
        gradient=right if options.gradient_decay else (),
        direction=vector if options.warm_start else (),
    )


def _value_after(
    revalue: Revalue | None, part: Part, model: Model, samples: Samples
) -> Callable[[Model], Float[Array, ""]]:
    """The loss after a step was subtracted."""

    def after(step: Model) -> Float[Array, ""]:
        if revalue is None:
            raise ValueError("this damping or length looks at the loss; give the objective's revalue")
        return revalue(part.put(model, tree.subtract(part.get(model), step)), samples)

    return after


def _backtracked(solution: Solution, factor: Any, right: Model, after: Callable[[Model], Array]) -> Solution:
    """The best of the iterates kept, if any were; an earlier one needs a product for its curvature."""
    if solution.iterates is None:
        return solution
    best, left = backtrack(after, solution.iterates, jnp.asarray(solution.kept))
    empty = jnp.asarray(solution.kept) == 0  # the start was already the solution
    value = tree.select(empty, solution.value, best)

    def again() -> tuple[Array, Array]:
        product = factor.operator.bind().mv(value)
        residual = tree.subtract(right, tree.axpy(factor.damping, value, product))
        share = tree.norm(residual) / jnp.maximum(tree.norm(right), 1e-30)
        return tree.vdot(value, product), share

    curvature, residual = jax.lax.cond(left, again, lambda: (solution.curvature, solution.residual))
    return solution._replace(value=value, curvature=curvature, residual=residual)


def _gained(options: Options, factor: Any, solution: Solution) -> tuple[Model, Array]:
    """The direction, and its length in the metric squared."""
    if not options.gain:
        return solution.value, solution.curvature
    vector = gained(factor.damping, solution.value)
    if options.relative:  # units have dampings of their own
        return vector, tree.vdot(vector, factor.operator.bind().mv(vector))
    return vector, (1 + factor.damping) ** 2 * solution.curvature


def _looked(options: Options, now: Kept) -> Array:
    """Whether the reduction ratio is looked at: now and then only where a metric is new."""
    every = options.damping.every
    return (every == 1) | ((now.age == 0) & (now.steps % every < options.refresh))


def _renewed_damping(
    damping: Damping, now: Kept, line: Line, rate: Array | None, failed: Array, looked: Array
) -> tuple[Array, Array]:
    """The reduction ratio, on the steps that look at it, and the damping's next level.

    What a failed solve promises is worth nothing: it has no ratio, and the damping rises. Steps of a metric
    that is kept, but for its first, say nothing of the level: they were solved with an earlier one.
    """
    nothing, look = jnp.full_like(line.slope, jnp.nan), damping.ratio
    if look is None or rate is None:
        return nothing, now.level

    def renewed() -> tuple[Array, Array]:
        ratio = jnp.where(failed, jnp.nan, look(line, rate))
        level = jnp.where(now.age == 0, damping.renew(now.level, ratio), now.level)
        return ratio, level.astype(now.level.dtype)

    return renewed() if damping.every == 1 else jax.lax.cond(looked, renewed, lambda: (nothing, now.level))


def _sound(options: Options, solution: Solution, rate: Array | None, ratio: Array, looked: Array) -> Array:
    """Whether the solve succeeded, and what looked at the loss saw one that is finite and good enough."""
    good = solution.result != FAILED
    if rate is not None:
        good = good & jnp.isfinite(rate)
    if options.damping.ratio is not None:
        least = -jnp.inf if options.damping.least is None else options.damping.least
        good = good & ((jnp.isfinite(ratio) & (ratio > least)) | ~looked)
    return good


def _evidence(solution: Solution, options: Options, kept: Kept, found: tuple[Any, Array, Array]) -> Evidence:
    rate, ratio, curvature = found
    length = jnp.full_like(ratio, jnp.nan) if rate is None else rate
    strength = options.damping.strength(kept.steps, kept.level)
    numbers = (solution.residual, strength, length, ratio, 0.5 * length**2 * curvature)
    counts = (solution.result.astype(jnp.int32), solution.iterations.astype(jnp.int32))
    return Evidence(*counts, *(jnp.asarray(number, kept.level.dtype) for number in numbers))
