"""From a config's names to the parts they stand for: the only place where strings choose behaviour.

method = objective + direction (metric and solve), then an optimiser: one line each below for Helmholtz
machines, in `network_methods` for networks. `problem` puts either into the session's terms.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from natgrad import config, network_registry
from natgrad.core import Algorithm, Direction, Objective, Problem, steepest
from natgrad.data import Dataset, batches
from natgrad.defaults import MACHINE
from natgrad.evaluate.monitor import Monitor
from natgrad.limits import chunk_length
from natgrad.metrics import per_unit
from natgrad.models.bernoulli import BINARY, SIGNED, Coding
from natgrad.models.helmholtz import Helmholtz, biases, helmholtz
from natgrad.objectives.bidirectional import bidirectional
from natgrad.objectives.phases import sleep_only
from natgrad.objectives.reweighted import reweighted
from natgrad.objectives.wake_sleep import wake_sleep
from natgrad.solvers.choice import Choice, always, automatic
from natgrad.solvers.diagonal import diagonal
from natgrad.solvers.direct import direct
from natgrad.solvers.dual import dual
from natgrad.solvers.krylov import conjugate_gradient
from natgrad.solvers.shared import shared
from natgrad.updates.alternate import alternate
from natgrad.updates.damping import levenberg_marquardt
from natgrad.updates.descent import descent
from natgrad.updates.first_order import OPTIMIZERS, SCHEDULES, downhill
from natgrad.updates.natural import Schedule, natural
from natgrad.updates.shaped import covector_momentum, trust_region

CODINGS = {"signed": SIGNED, "binary": BINARY}

WEIGHTS = {
    "glorot-normal": jax.nn.initializers.glorot_normal,
    "glorot-uniform": jax.nn.initializers.glorot_uniform,
    "lecun-normal": jax.nn.initializers.lecun_normal,
}


class Pace(NamedTuple):
    """How a training goes: its learning rate and the number of steps of its schedules."""

    rate: Schedule
    steps: int


def _wake_sleep(settings: config.Objective) -> Objective:
    return wake_sleep(settings.samples, sleep_share=settings.sleep_rate)


def _reweighted(settings: config.Objective) -> Objective:
    return reweighted(
        settings.samples,
        wake_share=settings.wake_share,
        sleep_share=settings.sleep_share * settings.sleep_rate,
        baseline=settings.baseline,
    )


def _bidirectional(settings: config.Objective) -> Objective:
    return bidirectional(settings.samples, baseline=settings.baseline)


def _steepest(settings: config.Config, pace: Pace) -> Direction:
    del settings, pace
    return steepest()


def _natural(settings: config.Config, pace: Pace) -> Direction:
    """Whole blocks, estimated from samples, by the chosen solver; `direct` and `dual` solve exactly."""
    return _natural_with(choice(settings), settings, pace)


def _diagonal(settings: config.Config, pace: Pace) -> Direction:
    """Only the blocks' diagonals."""
    return _natural_with(always(diagonal()), settings, pace)


Objectives = Callable[[config.Objective], Objective]
Directions = Callable[[config.Config, Pace], Direction]

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
    "shared": lambda chosen: always(shared()),
    "cg": lambda chosen: always(conjugate_gradient(chosen.iterations)),
    "diagonal": lambda chosen: always(diagonal()),
}


def choice(settings: config.Config) -> Choice:
    """The solver of a config for every layer."""
    if settings.method == "dnrws":
        return always(diagonal())
    return SOLVERS[settings.metric.solver](settings.metric)


def algorithm(settings: config.Config, steps: int) -> Algorithm:
    """The training method of a config, for a training of that many steps."""
    objective, direction = METHODS[settings.method]
    pace = Pace(learning_rate(settings.optimizer, steps), settings.optimizer.decay_steps or max(steps, 1))
    optimizer, scale = OPTIMIZERS[settings.optimizer.name](settings.optimizer.momentum), downhill(pace.rate)
    chosen, average = settings.objective, settings.evaluation.average
    put_together = functools.partial(descent, optimizer=optimizer, scale=scale, witness=biases)
    main = put_together(objective(chosen), direction(settings, pace), average=average)
    if chosen.sleeps == 1:
        return main
    share = chosen.sleep_rate * (1.0 if objective is _wake_sleep else chosen.sleep_share)
    resting = settings.metric.model_copy(
        update={"generation": "none", "recognition": "dreams", "kl_radius": 0.0}
    )
    asleep = settings.model_copy(update={"metric": resting})
    extra = put_together(sleep_only(chosen.samples, share), direction(asleep, pace))
    return alternate(main, extra, chosen.sleeps - 1)


def learning_rate(settings: config.Optimizer, steps: int) -> Schedule:
    """The learning rate as a function of the step."""
    length = settings.decay_steps or max(steps, 1)
    return SCHEDULES[settings.schedule](settings.learning_rate, length, settings.final_fraction)


def _natural_with(choose: Choice, settings: config.Config, pace: Pace) -> Direction:
    chosen = settings.metric
    metric = per_unit.fisher(
        GENERATION[chosen.generation], RECOGNITION[chosen.recognition], chosen.rows or None
    )
    if chosen.average:
        metric = per_unit.averaged(metric, chosen.average)
    adapt = levenberg_marquardt(pace.rate) if chosen.adaptive else None
    final = (chosen.final_damping or chosen.damping) / chosen.damping
    damping = SCHEDULES["exponential"](chosen.damping, pace.steps, final)
    direction = natural(
        metric, choose, damping, refresh=chosen.refresh, relative=chosen.relative, adapt=adapt
    )
    if chosen.momentum:
        direction = covector_momentum(direction, chosen.momentum)
    return trust_region(direction, chosen.kl_radius, pace.rate) if chosen.kl_radius else direction


def problem(key: PRNGKeyArray, settings: config.Config, dataset: Dataset) -> Problem:
    """What a session trains for a config; the key is that of evaluations."""
    if settings.model.kind != MACHINE:
        return network_registry.problem(settings, dataset)
    monitor, visible = Monitor(key, settings, dataset), dataset.visible
    return Problem(
        fresh=lambda key: model(key, settings.model, visible),
        algorithm=lambda changed, steps: algorithm(changed, steps),
        rows=batches.on_device(dataset.train, dataset.levels, dataset.resample),
        number=len(dataset.train),
        draw=_coded(settings.training.batch_size, CODINGS[settings.model.coding]),
        measure=monitor.measure,
        scale=visible * math.log(2),
        chunk=lambda samples: chunk_length(settings, visible, samples),
    )


def _coded(size: int, coding: Coding) -> Callable[..., Array]:
    """Batches of a Helmholtz machine: binary values in its coding, units-major."""

    def draw(key: PRNGKeyArray, rows: batches.Rows, order: Array, position: Array) -> Array:
        chosen = jax.lax.dynamic_slice(order, (position * size,), (size,))
        on = batches.draw(key, rows, chosen, jnp.zeros(()).dtype)
        return coding.value(on, on.dtype)

    return draw


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
