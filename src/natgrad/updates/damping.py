"""Damping that adapts itself: Levenberg and Marquardt's rule by the reduction ratio.

The ratio compares what a step does to generation's loss on the step's own weighted samples,
L = -sum w log p(x, h), with what the quadratic model says it does:

    rho = (L(after) - L(before)) / (-rate g^T d + (1/2) rate^2 d^T F d)       [revisiting eq. 29-30]

(with the quadratic term, so that the usual thresholds 1/4 and 3/4 mean what they mean elsewhere).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad import tree
from natgrad.core import Estimate
from natgrad.layers import bernoulli
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.models.helmholtz.phases import Phases
from natgrad.tree import map_layers

Adapt = Callable[[Array, Array, Helmholtz, Estimate, Helmholtz, Array], Array]
LOWEST, HIGHEST = 1e-3, 1e3


def levenberg_marquardt(
    learning_rate: Callable[[Array], Any], *, every: int = 20, factor: float = 1.1
) -> Adapt:
    """Multiply the damping by `factor` where a step disappoints, divide where it keeps its promise."""

    def adapt(
        steps: Array, scale: Array, model: Helmholtz, estimate: Estimate, direction: Helmholtz, length: Array
    ) -> Array:
        def judge() -> Array:
            rate = jnp.asarray(learning_rate(steps))
            ratio = reduction_ratio(model, estimate, direction, rate, length)
            worse, better = ratio < 0.25, ratio > 0.75
            change = jnp.where(worse, factor, jnp.where(better, 1 / factor, 1.0))
            return jnp.clip(scale * change, LOWEST, HIGHEST).astype(scale.dtype)

        return jax.lax.cond(steps % every == 0, judge, lambda: scale)

    return adapt


def reduction_ratio(
    model: Helmholtz, estimate: Estimate, direction: Helmholtz, rate: Array, length: Array
) -> Float[Array, ""]:
    """The actual over the predicted change of generation's loss, for a step of that rate."""
    moved = Helmholtz(
        model.prior - rate * direction.prior,
        jax.tree.map(lambda w, d: w - rate * d, model.generation, direction.generation),
        model.recognition,
        model.coding,
    )
    actual = generation_loss(moved, estimate.samples) - generation_loss(model, estimate.samples)
    slope = tree.vdot(
        (estimate.gradient.prior, estimate.gradient.generation), (direction.prior, direction.generation)
    )
    return actual / (-rate * slope + 0.5 * rate**2 * length)


def generation_loss(model: Helmholtz, drawn: Phases) -> Float[Array, ""]:
    """-sum w log p(x, h) over the wake samples, whose gradient is the p-wake one [nrws eq. 8]."""
    values = drawn.wake.values
    logits = (*map_layers(bernoulli.logits, model.generation, values[1:]), model.prior[:, None, None])
    on = tuple(model.coding.on(value) for value in values)
    log_joint = sum(map_layers(bernoulli.log_prob, logits, on), jnp.zeros(()))
    return -(drawn.weights * log_joint).sum() / drawn.weights.shape[1]
