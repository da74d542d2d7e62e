"""The natural direction: measure the gradient by the Fisher metric of what was just drawn.

    direction = (1 + a) (a I + F)^{-1} gradient          [nrws eq. 31]

so that a large damping a gives plain descent and a small one the natural gradient. A metric and its
factors may be kept for `refresh` steps [nrws sec. 6.2]; the damping is fixed while they are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad import tree
from natgrad.core import Direction, Estimate
from natgrad.layers.bernoulli import Layer
from natgrad.metrics.blocks import Blocks, scaled
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.fisher import Fisher, Metric
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.models.helmholtz.phases import Phases
from natgrad.solvers.choice import Choice
from natgrad.solvers.contract import Factor, Solution, Solver, solve_layers
from natgrad.updates.damping import Adapt

Schedule = Callable[[Int[Array, ""]], Any]


class Measured(NamedTuple):
    """One layer ready to be solved: its damping, and its factor unless that is made in passing."""

    factor: Factor | None
    damping: Float[Array, "*out"]  # one number, or one for every unit


class Factors(NamedTuple):
    """A whole machine ready to be solved; None stands for a network that keeps the plain gradient."""

    prior: Any
    generation: tuple[Measured, ...] | None
    recognition: tuple[Measured, ...] | None


class Kept(NamedTuple):
    """For the next step: its number, what is kept and its age, the metric's carry, the damping's scale."""

    steps: Int[Array, ""]
    age: Int[Array, ""]
    fisher: Any
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
        refresh: K, how many steps a metric serves; it is measured only when it is renewed.
        relative: measure the damping of a unit by its block's mean diagonal.
        adapt: rescales the damping by how well steps keep their promise.
    """

    def prepare(fisher: Fisher, steps: Array, scale: Array) -> Factors:
        strength = scale * jnp.asarray(damping(steps), scale.dtype)
        return _prepare(fisher, choose, _Plan(strength, relative, refresh > 1))

    def init(key: PRNGKeyArray, model: Helmholtz, estimate: Estimate) -> Kept:
        del key
        steps, carry = jnp.zeros((), jnp.int32), metric.init(model, estimate.samples)
        scale = jnp.ones((), model.prior.dtype)
        if refresh == 1:
            return Kept(steps, steps, (), (), carry, scale)
        measure = lambda m, e, c: metric.measure(c, m, e.samples)[0]  # noqa: E731
        fisher = tree.zeros(jax.eval_shape(measure, model, estimate, carry))
        factors = tree.zeros(jax.eval_shape(prepare, fisher, steps, scale))
        return Kept(steps, steps, fisher, factors, carry, scale)

    def apply(
        key: PRNGKeyArray, kept: Kept, model: Helmholtz, estimate: Estimate
    ) -> tuple[Helmholtz, Kept, Evidence]:
        del key

        def measured(drawn: Phases) -> Kept:
            fisher, carry = metric.measure(kept.metric, model, drawn)
            return kept._replace(fisher=fisher, factors=prepare(fisher, kept.steps, kept.scale), metric=carry)

        again = lambda: measured(_judged(model, estimate.samples))  # noqa: E731
        now = measured(estimate.samples) if refresh == 1 else _renewed(kept, again)
        fisher, factors = now.fisher, now.factors
        direction, iterations = _solve(fisher, factors, choose, estimate.gradient)
        scale = kept.scale
        if adapt is not None:
            length, _ = fisher_length(factors, estimate.gradient, direction)
            scale = adapt(kept.steps, scale, model, estimate, direction, length)
        after = _aged(now, refresh)._replace(scale=scale)
        return direction, after, Evidence(fisher, factors, estimate.gradient, direction, iterations)

    return Direction(init, apply, _keep)


def _renewed(kept: Kept, renew: Callable[[], Kept]) -> Kept:
    """What is kept, anew where it is due: a loop of one turn at most; a conditional would copy it."""
    once = lambda carried: (jnp.zeros((), bool), renew())  # noqa: E731
    return jax.lax.while_loop(lambda carried: carried[0], once, (kept.age == 0, kept))[1]


def _aged(now: Kept, refresh: int) -> Kept:
    """A step later; what serves one step only is not kept."""
    later = now._replace(steps=now.steps + 1, age=(now.age + 1) % refresh)
    return later._replace(fisher=(), factors=()) if refresh == 1 else later


def _judged(model: Helmholtz, drawn: Phases) -> Phases:
    """The same draws with their logits made anew: a step that keeps its metric need not store them for it."""
    again = lambda part: helmholtz.judged(model, part.values)  # noqa: E731
    return drawn._replace(wake=again(drawn.wake), dreams=again(drawn.dreams))


def _keep(taken: Array, before: Kept, after: Kept) -> Kept:
    """Metric and factors stay where they are: after a step that was refused they are made anew."""
    small = lambda kept: kept._replace(fisher=(), factors=())  # noqa: E731
    chosen = tree.select(taken, small(after), small(before))
    age = jnp.where(taken, after.age, 0)
    return chosen._replace(age=age, fisher=after.fisher, factors=after.factors)


def solver_names(fisher: Fisher, choose: Choice) -> dict[str, list[str]]:
    """The solver that a choice takes for every layer; shapes suffice."""
    pick = lambda stack: [choose(blocks).name for blocks in stack or ()]  # noqa: E731
    return {"generation": pick(fisher.generation), "recognition": pick(fisher.recognition)}


def fisher_length(factors: Factors, gradient: Helmholtz, direction: Helmholtz) -> tuple[Array, Array]:
    """d^T F d of both networks, from the equation that d solves: (a + F) d = (1 + a) g.

    Exact for a direct solve, and for conjugate gradients over parameters too (their error is orthogonal to
    d); in sample space it is off by the square of the residual that they leave.
    """

    def layer(measured: Measured, g: Layer, d: Layer) -> Array:
        a = jnp.broadcast_to(measured.damping, d.bias.shape)[:, None]
        weight = ((1 + a) * d.weight * g.weight - a * d.weight**2).sum()
        return weight + ((1 + a[:, 0]) * d.bias * g.bias - a[:, 0] * d.bias**2).sum()

    def network(stack: tuple[Measured, ...] | None, g: tuple[Layer, ...], d: tuple[Layer, ...]) -> Array:
        return sum(tree.map_layers(layer, stack, g, d), jnp.zeros(())) if stack is not None else jnp.zeros(())

    below = network(factors.generation, gradient.generation, direction.generation)
    if factors.prior is not None:
        below = below + (factors.prior.factor * direction.prior**2).sum()
    return below, network(factors.recognition, gradient.recognition, direction.recognition)


class _Plan(NamedTuple):
    """How factors are made: the damping, whether it is relative, and whether they are to be kept."""

    strength: Array
    relative: bool
    keep: bool


def _prepare(fisher: Fisher, choose: Choice, plan: _Plan) -> Factors:
    """Factor every layer, one LAPACK call after the other: side by side they can wait for ever."""
    strength, relative, keep = plan
    last = jnp.zeros((), strength.dtype)

    def layer(blocks: Blocks) -> Measured:
        nonlocal last
        solver = choose(blocks)
        mean = blocks.trace() / blocks.size
        damping = strength * mean if relative else strength
        if not (keep or solver.lapack):
            return Measured(None, damping)
        factor = solver.prepare(blocks, jnp.broadcast_to(damping + last, mean.shape))
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
    """One network and then the other: the compiler runs them side by side."""
    found = {
        name: _network(getattr(fisher, name), getattr(factors, name), choose, getattr(gradient, name))
        for name in fisher.networks
    }
    values = {name: tuple(solution.value for solution in solved) for name, solved in found.items()}
    prior = gradient.prior
    if factors.prior is not None:
        prior = (1 + factors.prior.damping) / (factors.prior.damping + factors.prior.factor) * prior
    generation = values.get("generation", gradient.generation)
    recognition = values.get("recognition", gradient.recognition)
    direction = Helmholtz(prior, generation, recognition, gradient.coding)
    return direction, tuple(solution.iterations for solved in found.values() for solution in solved)


def _network(
    stack: tuple[Blocks, ...], measured: tuple[Measured, ...], choose: Choice, right: tuple[Layer, ...]
) -> list[Solution]:
    damping = [jnp.broadcast_to(each.damping, g.bias.shape) for each, g in zip(measured, right, strict=True)]
    solvers = [choose(blocks) for blocks in stack]

    def factor(solver: Solver, blocks: Blocks, given: Measured, a: Array) -> Factor:
        return solver.prepare(blocks, a) if given.factor is None else given.factor

    prepared = [factor(*each) for each in zip(solvers, stack, measured, damping, strict=True)]
    solved = solve_layers(solvers, prepared, right)
    return [
        Solution(scaled(1 + a, value), jnp.asarray(taken))  # [nrws eq. 31]
        for a, (value, taken) in zip(damping, solved, strict=True)
    ]
