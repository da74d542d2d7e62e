"""From a config's names to the parts they stand for: the only place where strings choose behaviour.

method = objective + direction (metric and solve), then an optimiser: one line each below.
"""

from collections.abc import Callable

import jax
import optax
from jaxtyping import PRNGKeyArray

from natgrad import config
from natgrad.core import Algorithm, Direction, Objective, steepest
from natgrad.models.bernoulli import BINARY, SIGNED
from natgrad.models.helmholtz import Helmholtz, helmholtz
from natgrad.objectives.reweighted import reweighted
from natgrad.objectives.wake_sleep import wake_sleep
from natgrad.updates.descent import descent
from natgrad.updates.first_order import OPTIMIZERS, SCHEDULES

CODINGS = {"signed": SIGNED, "binary": BINARY}

WEIGHTS = {
    "glorot-normal": jax.nn.initializers.glorot_normal,
    "glorot-uniform": jax.nn.initializers.glorot_uniform,
    "lecun-normal": jax.nn.initializers.lecun_normal,
}


def _wake_sleep(settings: config.Objective) -> Objective:
    return wake_sleep(settings.samples)


def _reweighted(settings: config.Objective) -> Objective:
    return reweighted(
        settings.samples,
        wake_share=settings.wake_share,
        sleep_share=settings.sleep_share,
        baseline=settings.baseline,
    )


def _plain(settings: config.Config) -> Direction:
    del settings
    return steepest()


METHODS: dict[str, tuple[Callable[[config.Objective], Objective], Callable[[config.Config], Direction]]] = {
    "ws": (_wake_sleep, _plain),
    "rws": (_reweighted, _plain),
}


def algorithm(settings: config.Config, steps: int) -> Algorithm:
    """The training method of a config, for a training of that many steps."""
    objective, direction = METHODS[settings.method]
    return descent(objective(settings.objective), direction(settings), optimizer(settings.optimizer, steps))


def optimizer(settings: config.Optimizer, steps: int) -> optax.GradientTransformation:
    """The optax optimiser of a config with its learning-rate schedule."""
    length = settings.decay_steps or max(steps, 1)
    rate = SCHEDULES[settings.schedule](settings.learning_rate, length, settings.final_fraction)
    return OPTIMIZERS[settings.name](rate, settings.momentum)


def model(key: PRNGKeyArray, settings: config.Model, visible: int) -> Helmholtz:
    """A fresh model of a config for data of that width."""
    return helmholtz(
        key,
        (visible, *settings.layers),
        coding=CODINGS[settings.coding],
        weights=WEIGHTS[settings.weights](in_axis=1, out_axis=0),
        bias=settings.bias,
        prior_bias=settings.prior_bias,
    )
