"""The natural direction: measure the gradient by the Fisher metric of what was just drawn.

    direction = (1 + a) (a I + F)^{-1} gradient          [nrws eq. 31]

so that a large damping a gives plain descent and a small one the natural gradient. The factors of
a metric may be kept for `refresh` steps [nrws sec. 6.2]; the damping is fixed while they are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad import tree
from natgrad.core import Direction, Estimate
from natgrad.metrics.blocks import Blocks, scaled
from natgrad.metrics.per_unit import Fisher, Metric
from natgrad.models.bernoulli import Layer
from natgrad.models.helmholtz import Helmholtz
from natgrad.solvers.choice import Choice
from natgrad.solvers.contract import Factor
from natgrad.updates.damping import Adapt

Schedule = Callable[[Int[Array, ""]], Any]


class Measured(NamedTuple):
    """One layer ready to be solved: its factor, and the damping of every unit."""

    factor: Factor
    damping: Float[Array, " out"]


class Factors(NamedTuple):
    """A whole machine ready to be solved; None stands for a network that keeps the plain gradient."""

    prior: Any
    generation: tuple[Measured, ...] | None
    recognition: tuple[Measured, ...] | None


class Kept(NamedTuple):
    """For the next step: its number, the factors while frozen, the metric's carry, the damping's scale."""

    steps: Int[Array, ""]
    factors: Any
    metric: Any
    scale: Float[Array, ""]


class Evidence(NamedTuple):
    """For diagnostics: the metric, the factors with their damping, what was solved for and how."""

    fisher: Fisher
    factors: Factors
    gradient: Helmholtz
    solution: Helmholtz
    iterations: tuple[Any, ...]


def natural(
    metric: Metric,
    choose: Choice,
    damping: Schedule,
    *,
    refresh: int = 1,
    relative: bool = False,
    adapt: Adapt | None = None,
) -> Direction:
    """The natural direction of a Helmholtz machine.

    Args:
        metric: from the model and what was drawn to the Fisher operator.
        choose: the solver for a layer's blocks.
        damping: a, as a function of the step.
        refresh: K, how many steps a factor serves.
        relative: measure the damping of a unit by its block's mean diagonal.
        adapt: rescales the damping by how well steps keep their promise.
    """

    def prepare(fisher: Fisher, steps: Array, scale: Array) -> Factors:
        return _prepare(fisher, choose, scale * jnp.asarray(damping(steps), scale.dtype), relative)

    def init(key: PRNGKeyArray, model: Helmholtz, estimate: Estimate) -> Kept:
        del key
        steps, carry = jnp.zeros((), jnp.int32), metric.init(model, estimate.samples)
        scale = jnp.ones((), model.prior.dtype)
        if refresh == 1:
            return Kept(steps, (), carry, scale)
        measure = lambda m, e, c: prepare(metric.measure(c, m, e.samples)[0], steps, scale)  # noqa: E731
        return Kept(steps, tree.zeros(jax.eval_shape(measure, model, estimate, carry)), carry, scale)

    def apply(
        key: PRNGKeyArray, kept: Kept, model: Helmholtz, estimate: Estimate
    ) -> tuple[Helmholtz, Kept, Evidence]:
        del key
        fisher, carry = metric.measure(kept.metric, model, estimate.samples)
        if refresh == 1:
            factors = prepare(fisher, kept.steps, kept.scale)
        else:
            due = kept.steps % refresh == 0
            renew = lambda: prepare(fisher, kept.steps, kept.scale)  # noqa: E731
            factors = jax.lax.cond(due, renew, lambda: kept.factors)
        direction, iterations = _solve(fisher, factors, choose, estimate.gradient)
        scale = kept.scale
        if adapt is not None:
            length, _ = fisher_length(factors, estimate.gradient, direction)
            scale = adapt(kept.steps, scale, model, estimate, direction, length)
        after = Kept(kept.steps + 1, () if refresh == 1 else factors, carry, scale)
        return direction, after, Evidence(fisher, factors, estimate.gradient, direction, iterations)

    return Direction(init, apply)


def solver_names(fisher: Fisher, choose: Choice) -> dict[str, list[str]]:
    """The solver that a choice takes for every layer; shapes suffice."""
    pick = lambda stack: [choose(blocks).name for blocks in stack or ()]  # noqa: E731
    return {"generation": pick(fisher.generation), "recognition": pick(fisher.recognition)}


def fisher_length(factors: Factors, gradient: Helmholtz, direction: Helmholtz) -> tuple[Array, Array]:
    """d^T F d of both networks, from the equation that d solves: (a + F) d = (1 + a) g.

    Exact for a direct solve, and for conjugate gradients too (their error is orthogonal to d).
    """

    def layer(measured: Measured, g: Layer, d: Layer) -> Array:
        a = measured.damping[:, None]
        weight = ((1 + a) * d.weight * g.weight - a * d.weight**2).sum()
        return weight + ((1 + a[:, 0]) * d.bias * g.bias - a[:, 0] * d.bias**2).sum()

    def network(stack: tuple[Measured, ...] | None, g: tuple[Layer, ...], d: tuple[Layer, ...]) -> Array:
        return sum(tree.map_layers(layer, stack, g, d), jnp.zeros(())) if stack is not None else jnp.zeros(())

    below = network(factors.generation, gradient.generation, direction.generation)
    if factors.prior is not None:
        below = below + (factors.prior.factor * direction.prior**2).sum()
    return below, network(factors.recognition, gradient.recognition, direction.recognition)


def _prepare(fisher: Fisher, choose: Choice, strength: Array, relative: bool) -> Factors:
    """Factor every layer, one LAPACK call after the other: side by side they can wait for ever."""
    last = jnp.zeros((), strength.dtype)

    def layer(blocks: Blocks) -> Measured:
        nonlocal last
        solver = choose(blocks)
        mean = blocks.trace() / blocks.size
        damping = strength * mean if relative else jnp.full_like(mean, strength)
        if solver.lapack:
            damping = damping + last
        factor = solver.prepare(blocks, damping)
        if solver.lapack:
            last = _after(factor)
        return Measured(factor, damping)

    def network(stack: tuple[Blocks, ...] | None) -> tuple[Measured, ...] | None:
        return None if stack is None else tuple(layer(blocks) for blocks in stack)

    prior = None
    if fisher.prior is not None:
        prior = Measured(fisher.prior, strength * (fisher.prior if relative else jnp.ones_like(fisher.prior)))
    return Factors(prior, network(fisher.generation), network(fisher.recognition))


def _after(factor: Factor) -> Array:
    """A number that is nothing, but not known before the factor is."""
    elements = sum(leaf.ravel()[0] for leaf in jax.tree.leaves(factor))
    return jnp.where(jnp.isfinite(elements), jnp.clip(elements, -1, 1), 0) * 1e-30


def _solve(
    fisher: Fisher, factors: Factors, choose: Choice, gradient: Helmholtz
) -> tuple[Helmholtz, tuple[Any, ...]]:
    iterations = []

    def layer(blocks: Blocks, measured: Measured, g: Layer) -> Layer:
        solution = choose(blocks).solve(measured.factor, g)
        iterations.append(solution.iterations)
        return scaled(1 + measured.damping, solution.value)  # [nrws eq. 31]

    def network(
        stack: tuple[Blocks, ...] | None, measured: tuple[Measured, ...] | None, g: tuple[Layer, ...]
    ) -> tuple[Layer, ...]:
        return g if stack is None or measured is None else tree.map_layers(layer, stack, measured, g)

    prior = gradient.prior
    if factors.prior is not None:
        prior = (1 + factors.prior.damping) / (factors.prior.damping + factors.prior.factor) * prior
    direction = Helmholtz(
        prior,
        network(fisher.generation, factors.generation, gradient.generation),
        network(fisher.recognition, factors.recognition, gradient.recognition),
        gradient.coding,
    )
    return direction, tuple(iterations)
