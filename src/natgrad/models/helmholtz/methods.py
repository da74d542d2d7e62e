"""Methods of Helmholtz machines by name: an objective, a direction for each network, an optimizer."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import optax
from jaxtyping import Array

from natgrad.core import Algorithm, Direction, Info, Metric, Objective, Pace
from natgrad.layers.bernoulli import CODINGS
from natgrad.metrics.layered import averaged
from natgrad.models.helmholtz import fisher
from natgrad.models.helmholtz.machine import Helmholtz, biases
from natgrad.models.helmholtz.phases import bidirectional, reweighted, sleep_only, wake_sleep
from natgrad.solvers.choice import always, by_refresh, by_size
from natgrad.solvers.diagonal import diagonal
from natgrad.solvers.direct import direct
from natgrad.solvers.dual import dual
from natgrad.solvers.shared import shared
from natgrad.solvers.unit_cg import unit_conjugate_gradient
from natgrad.solvers.units import Choice, names_of, per_layer
from natgrad.updates.damping import Damping, levenberg_marquardt, scheduled
from natgrad.updates.descent import descent
from natgrad.updates.describe import of_layers
from natgrad.updates.first_order import SCHEDULES, Decay, downhill, optimizer_of, rate_schedule, steepest
from natgrad.updates.in_turn import Turn, in_turn
from natgrad.updates.kept import drift_of
from natgrad.updates.lengths import Length, divergence_ball, learning_rate, paced
from natgrad.updates.natural import Options, natural
from natgrad.updates.parts import Block, Part, blockwise

_WATCHED = 20  # steps from one look at the reduction ratio to the next
_FACTOR = 1.1  # of the damping, at every look: draws are few, and a single ratio says little

_OBJECTIVES: dict[str, Callable[[Any, int], Objective]] = {
    "wake-sleep": lambda chosen, samples: wake_sleep(samples, sleep_share=chosen.sleep_share),
    "reweighted": lambda chosen, samples: reweighted(
        samples, wake_share=chosen.wake_share, sleep_share=chosen.sleep_share, baseline=chosen.baseline
    ),
    "bidirectional": lambda chosen, samples: bidirectional(samples, baseline=chosen.baseline),
}

METHODS = {
    "ws": "wake-sleep",
    "rws": "reweighted",
    "bihm": "bidirectional",
    "nws": "wake-sleep",
    "nrws": "reweighted",
    "dnrws": "reweighted",
    "nbihm": "bidirectional",
}
"""The objective of every method; a method that has a [metric] is natural."""

SOURCES: dict[str, dict[str, Callable[[int | None], Metric]]] = {
    "generation": {"dreams": fisher.generation_from_dreams, "wake": fisher.generation_from_wake},
    "recognition": {
        "dreams": fisher.recognition_from_dreams,
        "wake": fisher.recognition_from_wake,
        "mixed": fisher.recognition_mixed,
    },
}
PARTS: dict[str, Part] = {"generation": fisher.GENERATION, "recognition": fisher.RECOGNITION}

_SOLVERS: dict[str, Callable[[int, int], Choice]] = {
    "auto": by_refresh,
    "direct": lambda refresh, iterations: always(direct()),
    "dual": lambda refresh, iterations: always(dual()),
    "exact": lambda refresh, iterations: by_size(),
    "shared": lambda refresh, iterations: always(shared()),
    "cg": lambda refresh, iterations: always(unit_conjugate_gradient(iterations)),
    "diagonal": lambda refresh, iterations: always(diagonal()),
}


class Own(NamedTuple):
    """What one network has of its own: its rate, damping and refresh."""

    rate: optax.Schedule
    damping: optax.Schedule
    refresh: int


def algorithm(settings: Any, samples: int, pace: Pace) -> Algorithm:
    """The training method of a config, with so many samples, at a pace."""
    chosen = settings.objective
    make = _OBJECTIVES[METHODS[settings.method]]
    put_together = functools.partial(
        descent,
        optimizer=optimizer_of(settings.optimizer),
        scale=_scale(settings, pace),
        telling=biases,
    )
    objective = make(chosen, samples)
    main = put_together(objective, _direction(settings, pace, objective), average=settings.evaluation.average)
    if getattr(chosen, "sleeps", 1) == 1:
        return main
    asleep = sleep_only(samples, chosen.sleep_share)
    extra = put_together(asleep, _asleep(settings, pace))
    return in_turn(main, Turn(extra, chosen.sleeps - 1))


def sources_of(settings: Any) -> tuple[Callable[[int | None], Metric], ...]:
    """The metrics that a config names, as the table has them now."""
    return tuple(SOURCES[name][getattr(settings.metric, name)] for name in _with_metric(settings))


def rate_of(settings: Any, pace: Pace, name: str = "") -> optax.Schedule:
    """The learning rate as a function of the step, of the whole machine or of one network."""
    own = getattr(settings, name).rate if name else None
    return rate_schedule(settings.optimizer, pace, own)


def solvers_of(settings: Any, info: Info) -> dict[str, list[str]]:
    """The solver of every layer of the networks that have a metric, for the reader; shapes suffice."""
    found = {}
    for name in _with_metric(settings):
        choose = _choice(settings, _refresh(settings, name))
        found[name] = names_of(info.evidence[name].factor.operator, choose)
    return found


def _scale(settings: Any, pace: Pace) -> Callable[[Array], Any]:
    """What the optimizer's result is multiplied by: one number, or one for each network."""
    if settings.generation.rate is None and settings.recognition.rate is None:
        return downhill(rate_of(settings, pace))
    below, above = (downhill(rate_of(settings, pace, name)) for name in PARTS)

    def scale(steps: Array) -> Helmholtz:
        rate = below(steps)
        return Helmholtz(rate, rate, above(steps), CODINGS[settings.model.coding])

    return scale


def _with_metric(settings: Any) -> tuple[str, ...]:
    """The networks that have a metric."""
    if not hasattr(settings, "metric"):
        return ()
    return tuple(name for name in PARTS if getattr(settings.metric, name) != "none")


def _direction(settings: Any, pace: Pace, objective: Objective) -> Direction:
    """The natural direction of every network that has a metric; the others keep their gradient."""
    with_metric = _with_metric(settings)
    if not with_metric:
        return steepest()
    looks = settings.metric.adaptive or settings.metric.kl_radius
    blocks: dict[str, Block] = {}
    sources = dict(zip(with_metric, sources_of(settings), strict=True))
    for name, part in PARTS.items():
        own = _own(settings, pace, name)
        if name in with_metric:
            direction = _natural(settings, own, (sources[name], part), objective)
            blocks[name] = Block(part, direction)
        elif looks:
            blocks[name] = Block(part, paced(steepest(), own.rate))
    return blockwise(blocks)


def _asleep(settings: Any, pace: Pace) -> Direction:
    """The direction of additional sleep steps: recognition's, by the Fisher of dreams, of any length."""
    if "recognition" not in _with_metric(settings):
        return steepest()
    resting = settings.metric.model_copy(update={"kl_radius": 0.0, "adaptive": False})
    own, part = _own(settings, pace, "recognition"), PARTS["recognition"]
    found = _natural(
        settings.model_copy(update={"metric": resting}), own, (fisher.recognition_from_dreams, part)
    )
    return blockwise({"recognition": Block(part, found)})


def _natural(
    settings: Any,
    own: Own,
    source_and_part: tuple[Callable[[int | None], Metric], Part],
    objective: Objective | None = None,
) -> Direction:
    chosen, (source, part) = settings.metric, source_and_part
    metric = source(chosen.rows or None)
    if own.refresh > 1:
        metric = fisher.from_values(metric)
    if chosen.average:
        metric = averaged(metric, chosen.average)
    options = Options(
        damping=_damping(chosen, own.damping),
        length=_length(chosen, own.rate),
        gain=True,
        refresh=own.refresh,
        drift=drift_of(chosen, own.rate),
        relative=chosen.relative,
        gradient_decay=chosen.gradient_decay,
    )
    revalue = None if objective is None else objective.revalue
    solver = per_layer(_choice(settings, own.refresh))
    return natural(metric, solver, options, revalue=revalue, part=part, describe=of_layers(gain=True))


def _own(settings: Any, pace: Pace, name: str) -> Own:
    chosen, metric = getattr(settings, name), settings.metric
    rate = rate_of(settings, pace, name)
    return Own(rate, _damping_schedule(metric, pace, chosen.damping), _refresh(settings, name))


def _refresh(settings: Any, name: str) -> int:
    """How many steps a network's metric serves."""
    found: int = getattr(settings, name).refresh or settings.metric.refresh
    return found


def _choice(settings: Any, refresh: int) -> Choice:
    """The solver of a config for every layer."""
    chosen = settings.metric
    if not hasattr(chosen, "solver"):
        return always(diagonal())
    return _SOLVERS[chosen.solver](refresh, chosen.iterations)


def _damping_schedule(chosen: Any, pace: Pace, own: float | None) -> optax.Schedule:
    """The damping as a function of the step; one that does not change may be the pace's."""
    if own is None and pace.numbers is not None and chosen.final_damping is None:
        given = pace.numbers
        return lambda count: given()[1]  # known where a step is traced
    damping = own or chosen.damping
    return SCHEDULES["exponential"](damping, Decay(pace.steps, (chosen.final_damping or damping) / damping))


def _damping(chosen: Any, schedule: optax.Schedule) -> Damping:
    falling = scheduled(schedule)
    if not chosen.adaptive:
        return falling
    return levenberg_marquardt(falling, factor=_FACTOR, every=_WATCHED, bounds=(1e-3, 1e3))


def _length(chosen: Any, rate: optax.Schedule) -> Length | None:
    """None where the learning rate of the whole step decides."""
    if chosen.kl_radius:
        return divergence_ball(chosen.kl_radius, longest=learning_rate(rate))
    return learning_rate(rate) if chosen.adaptive else None
