"""Methods of variational autoencoders by the names of a config: objectives, directions, an optimizer."""

from collections.abc import Callable
from typing import Any, NamedTuple

import optax

from natgrad.core import Algorithm, Direction, Info, Metric, Objective, Pace, Solver
from natgrad.models.vae import fisher
from natgrad.models.vae.fisher import RECOGNITION_SIDE, Latents, Side, generation_side
from natgrad.models.vae.objectives import (
    Lesson,
    elbo_loss,
    importance_loss,
    one_lesson,
    sleep_loss,
    two_lessons,
    wake_loss,
)
from natgrad.solvers.choice import always, by_refresh
from natgrad.solvers.diagonal import diagonal
from natgrad.solvers.layer_blocks import factored_solve
from natgrad.solvers.truncated import conjugate_gradient
from natgrad.solvers.units import per_layer
from natgrad.solvers.whole import dense_solve, dual_solve
from natgrad.updates.damping import constant, levenberg_marquardt
from natgrad.updates.descent import descent
from natgrad.updates.describe import of_layers, of_system
from natgrad.updates.first_order import downhill, optimizer_of, rate_schedule, steepest
from natgrad.updates.in_turn import Turn, in_turn
from natgrad.updates.kept import drift_of
from natgrad.updates.lengths import divergence_ball, learning_rate
from natgrad.updates.natural import Options, natural
from natgrad.updates.parts import Block, blockwise

_DECAY = 0.9  # of the averages of Kronecker factors, from one renewal to the next
_WATCHED, _FACTOR = 20, 1.1  # steps between two looks at the damping, and how it then changes

LESSONS: dict[str, Lesson] = {
    "elbo": elbo_loss,
    "importance": importance_loss,
    "sleep": sleep_loss,
    "wake": wake_loss,
}
LATENTS: dict[str, Latents] = {"recognition": fisher.from_recognition, "prior": fisher.from_prior}
NETWORKS = ("generation", "recognition")


class MetricAndSolver(NamedTuple):
    """How a network is measured and its system solved; `layered` if unit by unit."""

    metric: Callable[[Side, int], Metric]
    solver: Callable[[int, int], Solver]
    layered: bool = False


_SOLVERS: dict[str, MetricAndSolver] = {
    "units": MetricAndSolver(
        fisher.unit_blocks_of, lambda refresh, turns: per_layer(by_refresh(refresh, turns)), layered=True
    ),
    "diagonal": MetricAndSolver(
        fisher.unit_blocks_of, lambda refresh, turns: per_layer(always(diagonal())), layered=True
    ),
    "cg": MetricAndSolver(fisher.exact_products, lambda refresh, turns: conjugate_gradient(turns)),
    "kronecker": MetricAndSolver(
        lambda side, rows: fisher.factors_of(side, rows, _DECAY), lambda refresh, turns: factored_solve()
    ),
    "dual": MetricAndSolver(fisher.sampled_scores, lambda refresh, turns: dual_solve(refine=False)),
}
_WHOLE_SOLVERS: dict[str, Callable[[int], Solver]] = {
    "cg": conjugate_gradient,
    "direct": lambda turns: dense_solve(),
}


class OwnSettings(NamedTuple):
    """What one network has of its own."""

    rate: optax.Schedule
    damping: float
    refresh: int


def lessons_of(chosen: Any, samples: int) -> Objective:
    """Both networks by the lessons of a config, with so many samples."""
    return two_lessons(LESSONS[chosen.generation], LESSONS[chosen.recognition], samples)


def lesson_of(chosen: Any, name: str, samples: int) -> Objective:
    """One network by its lesson."""
    return one_lesson(_side(name, "recognition").part, LESSONS[getattr(chosen, name)], samples)


def algorithm(settings: Any, samples: int, pace: Pace) -> Algorithm:
    """The training method of a config, with so many samples, at a pace."""
    return METHODS[settings.method](settings, samples, pace)


def _rate(settings: Any, pace: Pace, name: str = "") -> optax.Schedule:
    """The learning rate as a function of the step, of all or of one network."""
    return rate_schedule(settings.optimizer, pace, getattr(settings, name).rate if name else None)


def _plain(settings: Any, samples: int, pace: Pace) -> Algorithm:
    return _descent(settings, pace, lessons_of(settings.objective, samples), steepest())


def _natural(settings: Any, samples: int, pace: Pace) -> Algorithm:
    """One system of both networks."""
    chosen, objective = settings.metric, lessons_of(settings.objective, samples)
    own = OwnSettings(_rate(settings, pace), chosen.damping, chosen.refresh)
    solver = _WHOLE_SOLVERS["cg" if chosen.solver == "auto" else chosen.solver](chosen.iterations)
    direction = natural(
        fisher.products_of_both(chosen.rows),
        solver,
        _options(chosen, own),
        revalue=objective.revalue,
        describe=of_system,
    )
    return _descent(settings, pace, objective, direction)


def _two_step(settings: Any, samples: int, pace: Pace) -> Algorithm:
    """A system of each network: both at once, or one network after the other."""
    chosen = settings.objective
    lessons = {name: lesson_of(chosen, name, samples) for name in NETWORKS}
    blocks = {name: _block(settings, pace, name, lesson) for name, lesson in lessons.items()}
    together = _descent(settings, pace, lessons_of(chosen, samples), blockwise(blocks))
    if settings.steps.order == "together":
        return together
    alone = {
        name: _descent(settings, pace, lessons[name], blockwise({name: blocks[name]})) for name in NETWORKS
    }
    first, last = NETWORKS if settings.steps.order == "generation-first" else NETWORKS[::-1]
    both = in_turn(alone[last], Turn(alone[first], settings.steps.repeats or 1), told=_told_of_both)
    return both._replace(describe=together.describe)


def _told_of_both(last: Info, others: list[Info]) -> Info:
    """One step of both networks, of the steps of each; the value is that of generation's lesson."""
    infos = {name: info for info in (last, *others) for name in info.evidence}
    generation, recognition = (infos[name] for name in NETWORKS)
    part = RECOGNITION_SIDE.part
    trees = {
        name: part.put(getattr(generation, name), part.get(getattr(recognition, name)))
        for name in ("gradient", "direction", "shaped", "scale")
    }
    return generation._replace(
        diagnostics=recognition.diagnostics | generation.diagnostics,
        evidence=generation.evidence | recognition.evidence,
        **trees,
    )


METHODS: dict[str, Callable[[Any, int, Pace], Algorithm]] = {
    "two-step": _two_step,
    "natural": _natural,
    "plain": _plain,
}


def _block(settings: Any, pace: Pace, name: str, objective: Objective) -> Block:
    chosen, side = settings.metric, _side(name, settings.metric.latent)
    own = _own(settings, pace, name)
    way = _SOLVERS[chosen.solver]
    direction = natural(
        way.metric(side, chosen.rows),
        way.solver(own.refresh, chosen.iterations),
        _options(chosen, own),
        revalue=objective.revalue,
        part=side.part,
        describe=of_layers(gain=False) if way.layered else of_system,
    )
    return Block(side.part, direction)


def _side(name: str, latent: str) -> Side:
    return RECOGNITION_SIDE if name == "recognition" else generation_side(LATENTS[latent])


def _own(settings: Any, pace: Pace, name: str) -> OwnSettings:
    chosen, metric = getattr(settings, name), settings.metric
    rate = _rate(settings, pace, name)
    return OwnSettings(rate, chosen.damping or metric.damping, chosen.refresh or metric.refresh)


def _options(chosen: Any, own: OwnSettings) -> Options:
    damping, length = constant(own.damping), learning_rate(own.rate)
    if chosen.kl_radius:
        length = divergence_ball(chosen.kl_radius, longest=length)
    return Options(
        damping=levenberg_marquardt(damping, factor=_FACTOR, every=_WATCHED) if chosen.adaptive else damping,
        length=length,
        refresh=own.refresh,
        drift=drift_of(chosen, own.rate),
        relative=chosen.relative,
        gradient_decay=chosen.gradient_decay,
    )


def _descent(settings: Any, pace: Pace, objective: Objective, direction: Direction) -> Algorithm:
    return descent(
        objective,
        direction,
        optimizer_of(settings.optimizer),
        scale=downhill(_rate(settings, pace)),
        average=settings.evaluation.average,
    )
