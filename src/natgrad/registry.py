"""From a config's names to the parts they stand for: the only place where strings choose behaviour.

method = objective + direction (metric and solve), then an optimiser: one line each below.
"""

from collections.abc import Callable

import jax
import optax
from jaxtyping import PRNGKeyArray

from natgrad import config
from natgrad.core import Algorithm, Direction, Objective, steepest
from natgrad.metrics import per_unit
from natgrad.models.bernoulli import BINARY, SIGNED
from natgrad.models.helmholtz import Helmholtz, helmholtz
from natgrad.objectives.bidirectional import bidirectional
from natgrad.objectives.reweighted import reweighted
from natgrad.objectives.wake_sleep import wake_sleep
from natgrad.solvers.choice import Choice, always, automatic
from natgrad.solvers.diagonal import diagonal
from natgrad.solvers.direct import direct
from natgrad.solvers.dual import dual
from natgrad.solvers.krylov import conjugate_gradient
from natgrad.updates.descent import descent
from natgrad.updates.first_order import OPTIMIZERS, SCHEDULES
from natgrad.updates.natural import Schedule, natural
from natgrad.updates.shaped import covector_momentum, trust_region

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


def _bidirectional(settings: config.Objective) -> Objective:
    return bidirectional(settings.samples, baseline=settings.baseline)


def _steepest(settings: config.Config, rate: Schedule) -> Direction:
    del settings, rate
    return steepest()


def _natural(settings: config.Config, rate: Schedule) -> Direction:
    """The exact blocks, by the chosen solver."""
    chosen = settings.metric
    return _natural_with(SOLVERS[chosen.solver](chosen), settings, rate)


def _diagonal(settings: config.Config, rate: Schedule) -> Direction:
    """Only the blocks' diagonals."""
    return _natural_with(always(diagonal()), settings, rate)


Objectives = Callable[[config.Objective], Objective]
Directions = Callable[[config.Config, Schedule], Direction]

METHODS: dict[str, tuple[Objectives, Directions]] = {
    "ws": (_wake_sleep, _steepest),
    "rws": (_reweighted, _steepest),
    "bihm": (_bidirectional, _steepest),
    "nws": (_wake_sleep, _natural),
    "nrws": (_reweighted, _natural),
    "dnrws": (_reweighted, _diagonal),
    "nbihm": (_bidirectional, _natural),
}

GENERATION = {
    "dreams": per_unit.generation_from_dreams,
    "wake": per_unit.generation_from_wake,
    "reference": per_unit.generation_as_published,
    "none": per_unit.generation_plain,
}

RECOGNITION = {
    "dreams": per_unit.recognition_from_dreams,
    "wake": per_unit.recognition_from_wake,
    "none": per_unit.recognition_plain,
}

SOLVERS: dict[str, Callable[[config.Metric], Choice]] = {
    "auto": lambda chosen: automatic(chosen.refresh, chosen.iterations),
    "direct": lambda chosen: always(direct()),
    "dual": lambda chosen: always(dual()),
    "cg": lambda chosen: always(conjugate_gradient(chosen.iterations)),
    "diagonal": lambda chosen: always(diagonal()),
}


def algorithm(settings: config.Config, steps: int) -> Algorithm:
    """The training method of a config, for a training of that many steps."""
    objective, direction = METHODS[settings.method]
    rate = learning_rate(settings.optimizer, steps)
    optimizer = OPTIMIZERS[settings.optimizer.name](rate, settings.optimizer.momentum)
    return descent(objective(settings.objective), direction(settings, rate), optimizer)


def learning_rate(settings: config.Optimizer, steps: int) -> Schedule:
    """The learning rate as a function of the step."""
    length = settings.decay_steps or max(steps, 1)
    return SCHEDULES[settings.schedule](settings.learning_rate, length, settings.final_fraction)


def _natural_with(choose: Choice, settings: config.Config, rate: Schedule) -> Direction:
    chosen = settings.metric
    metric = per_unit.fisher(
        GENERATION[chosen.generation], RECOGNITION[chosen.recognition], chosen.rows or None
    )
    if chosen.average:
        metric = per_unit.averaged(metric, chosen.average)
    damping = optax.constant_schedule(chosen.damping)
    direction = natural(metric, choose, damping, refresh=chosen.refresh, relative=chosen.relative)
    if chosen.momentum:
        direction = covector_momentum(direction, chosen.momentum)
    return trust_region(direction, chosen.kl_radius, rate) if chosen.kl_radius else direction


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
