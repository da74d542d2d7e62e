"""The plain direction; optax optimizers, without their learning rate, and its schedules, by name."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray

from natgrad.config.sections import FINAL_FRACTION, MOMENTUM
from natgrad.core import Carry, Direction, Estimate, Model, Pace, Step

OPTIMIZERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "sgd": lambda momentum: optax.identity(),
    "momentum": optax.trace,
    "nesterov": lambda momentum: optax.trace(momentum, nesterov=True),
    "adam": lambda momentum: optax.scale_by_adam(b1=momentum),
    "nadam": lambda momentum: optax.scale_by_adam(b1=momentum, nesterov=True),
    "rmsprop": lambda momentum: optax.scale_by_rms(decay=momentum),
}


def optimizer_of(chosen: Any) -> optax.GradientTransformation:
    """The optimizer of a section of settings; sgd where the section names none."""
    given = getattr(chosen, "momentum", None)
    own = OPTIMIZERS[getattr(chosen, "name", "sgd")](MOMENTUM if given is None else given)
    if not getattr(chosen, "weight_decay", 0.0):
        return own
    return optax.chain(own, optax.add_decayed_weights(chosen.weight_decay, mask=_weights))


def _weights(model: Model) -> Any:
    """Which arrays of a model are weights: matrices and filters, not biases."""
    return jax.tree.map(lambda leaf: jnp.ndim(leaf) > 1, model)


class Decay(NamedTuple):
    """How a rate falls: over so many steps, to that fraction; or held for some and then by inverse time."""

    steps: int
    final: float
    hold: int = 200
    time: float = 20.0


SCHEDULES: dict[str, Callable[[float, Decay], optax.Schedule]] = {
    "constant": lambda rate, decay: optax.constant_schedule(rate),
    "cosine": lambda rate, decay: optax.cosine_decay_schedule(rate, decay.steps, alpha=decay.final),
    "exponential": lambda rate, decay: optax.exponential_decay(
        rate, decay.steps, decay.final, end_value=rate * decay.final
    ),
    "inverse": lambda rate, decay: lambda count: rate / (1 + count * (1 / decay.final - 1) / decay.steps),
    "linear": lambda rate, decay: optax.linear_schedule(rate, rate * decay.final, decay.steps),
    "inverse-time": lambda rate, decay: inverse_time(rate, hold=decay.hold, time=decay.time),
}


def rate_schedule(chosen: Any, pace: Pace, rate: float | None = None) -> optax.Schedule:
    """The learning rate of a section of settings, or another one, as a function of the step."""
    if rate is None and pace.numbers is not None:  # known where a step is traced
        given = pace.numbers
        return lambda count: rate_schedule(chosen, pace, given()[0])(count)
    start = pace.cut * (chosen.learning_rate if rate is None else rate)
    if not hasattr(chosen, "schedule"):
        return optax.constant_schedule(start)
    final = chosen.final_fraction or FINAL_FRACTION
    decay = Decay(pace.steps, final, chosen.hold_steps or 200, chosen.decay_time or 20.0)
    return warmed(SCHEDULES[chosen.schedule](start, decay), chosen.warmup)


def warmed(rate: optax.Schedule, steps: int) -> optax.Schedule:
    """A rate that rises evenly over the first steps: a share (t + 1) / steps of what it would be."""
    if steps == 0:
        return rate
    return lambda count: rate(count) * jnp.minimum(1.0, (jnp.asarray(count) + 1).astype(float) / steps)


def inverse_time(rate: float, *, hold: int = 200, time: float = 20.0) -> optax.Schedule:
    """The rate for `hold` steps, then rate / (1 + (t - hold) / time) [revisiting sec. 8.6]."""
    return lambda count: rate / (1 + jnp.maximum(jnp.asarray(count) - hold, 0).astype(float) / time)


def downhill(rate: optax.Schedule) -> optax.Schedule:
    """What an optimizer's result is multiplied by: minus the learning rate."""

    def scale(steps: Array) -> Array:
        return -rate(steps)

    return scale


def steepest() -> Direction:
    """The Euclidean direction: the gradient itself."""

    def init(key: PRNGKeyArray, model: Model, estimate: Estimate) -> Carry:
        del key, model, estimate
        return ()

    def apply(key: PRNGKeyArray, carry: Carry, model: Model, estimate: Estimate) -> Step:
        del key, model
        return Step(estimate.gradient, carry)

    return Direction(init, apply)
