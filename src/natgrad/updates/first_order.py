"""Optax optimisers, without their learning rate, and its schedules, by name."""

from collections.abc import Callable

import optax

OPTIMIZERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "sgd": lambda momentum: optax.identity(),
    "momentum": optax.trace,
    "nesterov": lambda momentum: optax.trace(momentum, nesterov=True),
    "adam": lambda momentum: optax.scale_by_adam(b1=momentum),
    "nadam": lambda momentum: optax.scale_by_adam(b1=momentum, nesterov=True),
    "rmsprop": lambda momentum: optax.scale_by_rms(decay=momentum),
}

SCHEDULES: dict[str, Callable[[float, int, float], optax.Schedule]] = {
    "constant": lambda rate, steps, final: optax.constant_schedule(rate),
    "cosine": lambda rate, steps, final: optax.cosine_decay_schedule(rate, steps, alpha=final),
    "exponential": lambda rate, steps, final: optax.exponential_decay(
        rate, steps, final, end_value=rate * final
    ),
    "inverse": lambda rate, steps, final: lambda count: rate / (1 + count * (1 / final - 1) / steps),
    "linear": lambda rate, steps, final: optax.linear_schedule(rate, rate * final, steps),
}


def downhill(rate: optax.Schedule) -> optax.Schedule:
    """What an optimiser's result is multiplied by: minus the learning rate."""
    return lambda steps: -rate(steps)
