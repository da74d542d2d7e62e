"""Optax optimisers and learning-rate schedules by name."""

from collections.abc import Callable

import optax


def sgd(rate: optax.ScalarOrSchedule, momentum: float) -> optax.GradientTransformation:
    """Plain descent; momentum is not used."""
    del momentum
    return optax.sgd(rate)


def heavy_ball(rate: optax.ScalarOrSchedule, momentum: float) -> optax.GradientTransformation:
    """Descent with momentum."""
    return optax.sgd(rate, momentum)


def nesterov(rate: optax.ScalarOrSchedule, momentum: float) -> optax.GradientTransformation:
    """Descent with Nesterov's momentum."""
    return optax.sgd(rate, momentum, nesterov=True)


OPTIMIZERS: dict[str, Callable[[optax.ScalarOrSchedule, float], optax.GradientTransformation]] = {
    "sgd": sgd,
    "momentum": heavy_ball,
    "nesterov": nesterov,
    "adam": lambda rate, momentum: optax.adam(rate, b1=momentum),
    "nadam": lambda rate, momentum: optax.nadam(rate, b1=momentum),
    "rmsprop": lambda rate, momentum: optax.rmsprop(rate, decay=momentum),
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
