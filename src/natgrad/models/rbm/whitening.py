"""Whitening as a chart: the machine stays as it is, steps are made where its statistics are white.

    z = U (v - m),     y = V (h - l),     -E = a'^T z + b'^T y + y^T W' z + log base(v)
    W = V^T W' U,      a = U^T a' - W^T l,      b = V^T b' - W m

With U, V, m, l fixed this is a linear map from (W', b', a') to the parameters of the plain machine: gradients
go over by its transpose (`to_whitened`), directions by the map itself (`from_whitened`), as with centering.
A change of U and V changes the chart and cannot change the machine. Where z and y are white and nearly
independent, the Fisher of the chart is nearly the identity, and its gradient nearly the natural one.

    whitening          U <- U - rate (E[z z^T] - I) U              [cardoso1996], likewise V
    eigen-whitening    U = (E[(v - m)(v - m)^T] + epsilon I)^(-1/2) by its eigenvectors    [desjardins2015]

The first has the noise epsilon added to v and h too: its limit is then the second, and units that never
change do not make it diverge.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad import tree
from natgrad.core import Direction, Estimate, Step
from natgrad.models.rbm.machine import Boltzmann, Offsets, from_centered, to_centered
from natgrad.models.rbm.moments import Joint, covariances
from natgrad.models.rbm.objectives import MEMORY, Contrast
from natgrad.solvers.units import known_after


class WhiteChart(NamedTuple):
    """U and V."""

    visible: Float[Array, "visible visible"]
    hidden: Float[Array, "hidden hidden"]


class Second(NamedTuple):
    """The second moments of v and h about their offsets."""

    visible: Float[Array, "visible visible"]
    hidden: Float[Array, "hidden hidden"]


Rule = Callable[[WhiteChart, Second, Any], tuple[WhiteChart, Any]]
"""How a chart follows moments: the chart, them and `after` to the next ones (see `Estimate`)."""


class Whitened(NamedTuple):
    """What is kept: the chart, moments averaged over steps if any are, and the number of steps."""

    chart: WhiteChart
    seen: Second | tuple[()]
    steps: Int[Array, ""]


def identity_chart(model: Boltzmann) -> WhiteChart:
    """The chart in which nothing is whitened."""
    visible, hidden = model.sizes
    return WhiteChart(jnp.eye(visible, dtype=model.weight.dtype), jnp.eye(hidden, dtype=model.weight.dtype))


def to_whitened(
    gradient: Boltzmann, chart: WhiteChart, offsets: Offsets, *, biases: bool = True
) -> Boltzmann:
    """The gradient with respect to W', b' and a'; without `biases` the latter stay those of centering."""
    centered, (low, high) = to_centered(gradient, offsets), chart
    weight = high @ centered.weight @ low.T
    if not biases:
        return centered.with_arrays(weight, centered.hidden_bias, centered.visible_bias)
    return centered.with_arrays(weight, high @ centered.hidden_bias, low @ centered.visible_bias)


def from_whitened(
    direction: Boltzmann, chart: WhiteChart, offsets: Offsets, *, biases: bool = True
) -> Boltzmann:
    """What parameters or a direction of the chart are in the machine's own."""
    low, high = chart
    weight, above, below = high.T @ direction.weight @ low, direction.hidden_bias, direction.visible_bias
    if biases:
        above, below = high.T @ above, low.T @ below
    return from_centered(direction.with_arrays(weight, above, below), offsets)


def equivariant(rate: float, epsilon: float) -> Rule:
    """U <- U - rate' (K - I) U with K = E[z z^T], and rate' = rate / (1 + rate ||K||) [cardoso1996].

    As rate' ||K|| < 1, no step makes U singular, however large the rate is.
    """

    def moved(matrix: Array, moments: Array) -> Array:
        identity = jnp.eye(len(matrix), dtype=matrix.dtype)
        white = matrix @ (moments + epsilon * identity) @ matrix.T
        return matrix - rate / (1 + rate * jnp.linalg.norm(white)) * (white - identity) @ matrix

    def renew(chart: WhiteChart, moments: Second, after: Any) -> tuple[WhiteChart, Any]:
        return WhiteChart(*map(moved, chart, moments)), after

    return renew


def by_eigenvectors(epsilon: float) -> Rule:
    """The symmetric roots; the second decomposition waits for the first (see `Estimate.after`)."""

    def root(moments: Array, after: Any) -> tuple[Array, Any]:
        noise = (epsilon + after) * jnp.eye(len(moments), dtype=moments.dtype)
        values, vectors = jnp.linalg.eigh(moments + noise)
        bounded = jnp.maximum(values, epsilon)  # rounding may leave less
        return (vectors / jnp.sqrt(bounded)) @ vectors.T, known_after((values, vectors))

    def renew(chart: WhiteChart, moments: Second, after: Any) -> tuple[WhiteChart, Any]:
        del chart
        below, after = root(moments.visible, after)
        above, after = root(moments.hidden, after)
        return WhiteChart(below, above), after

    return renew


def second_moments(joint: Joint, offsets: Offsets) -> Second:
    """E[(v - m)(v - m)^T] and that of h."""
    found = covariances(joint)
    visible, hidden = ((found.y, found.yy), (found.x, found.xx))
    if not joint.hidden_first:
        visible, hidden = hidden, visible
    moved = [
        block + jnp.outer(mean - offset, mean - offset)
        for (mean, block), offset in zip((visible, hidden), offsets, strict=True)
    ]
    return Second(*moved)


def whitened_steepest(
    rule: Rule,
    joint_of: Callable[[Boltzmann, Contrast], Joint],
    *,
    averaged: bool = False,
    refresh: int = 1,
    biases: bool = True,
) -> Direction:
    """The gradient of a whitened chart, as a direction of the machine's own parameters.

    Args:
        rule: how the chart follows moments.
        joint_of: the distribution that is to be white, from the model and what a step has drawn.
        averaged: whether the rule takes moments averaged over steps, or those of the step.
        refresh: how many steps a chart serves.
        biases: whether biases are of the chart too, or only weights.
    """

    def init(key: PRNGKeyArray, model: Boltzmann, estimate: Estimate) -> Whitened:
        del key, estimate
        chart = identity_chart(model)
        return Whitened(chart, Second(*chart) if averaged else (), jnp.zeros((), jnp.int32))

    def apply(key: PRNGKeyArray, kept: Whitened, model: Boltzmann, estimate: Estimate) -> Step:
        del key
        drawn = estimate.samples
        moments = lambda: second_moments(joint_of(model, drawn), drawn.offsets)  # noqa: E731
        memory = _memory(kept.steps, drawn.rows.dtype)
        seen: Any = tree.blend(memory, kept.seen, moments()) if averaged else ()

        def renewed(before: tuple[WhiteChart, Array]) -> tuple[WhiteChart, Array]:
            return rule(before[0], seen if averaged else moments(), before[1])

        current = kept.chart, jnp.asarray(estimate.after, drawn.rows.dtype)
        due = kept.steps % refresh == 0
        chart, after = renewed(current) if refresh == 1 else _once(due, renewed, current)
        turned = to_whitened(estimate.gradient, chart, drawn.offsets, biases=biases)
        vector = from_whitened(turned, chart, drawn.offsets, biases=biases)
        return Step(vector, Whitened(chart, seen, kept.steps + 1), after=after)

    return Direction(init, apply)


def _memory(steps: Int[Array, ""], kind: Any) -> Float[Array, ""]:
    """A plain mean at first, then an average that forgets."""
    count = steps.astype(kind)
    return jnp.minimum(MEMORY, count / (count + 1))


def _once(due: Array, function: Callable[[Any], Any], carried: Any) -> Any:
    """The function where it is due: a loop of one turn at most, as a conditional would copy."""
    turn = lambda pair: (jnp.zeros((), bool), function(pair[1]))  # noqa: E731
    return jax.lax.while_loop(lambda pair: pair[0], turn, (due, carried))[1]
