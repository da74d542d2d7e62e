"""What must hold between the sections of a config, and what may be asked of several together."""

from typing import Any

from natgrad.config.sections import ENDLESS
from natgrad.errors import InputError


def rate_ends(config: Any) -> bool:
    """Whether the learning rate follows a schedule that has an end."""
    return getattr(config.optimizer, "schedule", ENDLESS[0]) not in ENDLESS


def own_length(config: Any) -> None:
    """Adaptive damping and a KL radius decide the length of a step themselves: no optimizer may change it."""
    if (config.metric.adaptive or config.metric.kl_radius) and config.optimizer.name != "sgd":
        raise InputError(
            "a metric with adaptive damping or a KL radius decides its own steps, got the optimizer "
            f"{config.optimizer.name}; use sgd, or leave metric.adaptive and metric.kl_radius out"
        )


def own_steps(config: Any) -> None:
    """A metric that counts how far its steps went has to know them: no optimizer may change them."""
    if config.metric.renewal_kl and config.optimizer.name != "sgd":
        raise InputError(
            "metric.renewal_kl adds up the divergence of natural steps, got the optimizer "
            f"{config.optimizer.name}, which makes other steps of them; use sgd, or give metric.refresh alone"
        )
