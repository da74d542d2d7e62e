"""Methods of Boltzmann machines by the names of a config: an objective, a direction, an optimizer."""

from collections.abc import Callable
from typing import Any

import optax

from natgrad.core import Algorithm, Direction, Metric, Objective, Pace
from natgrad.models.rbm.fisher import exact_fisher, sampled_fisher
from natgrad.models.rbm.machine import both_biases
from natgrad.models.rbm.moments import joint_of, joint_of_data
from natgrad.models.rbm.negative import Negative, contrastive_divergence, persistent, tempered
from natgrad.models.rbm.objectives import centered_steepest, enumerated_likelihood, sampled_likelihood
from natgrad.models.rbm.penalty import BLOCKS, penalized, practically_penalized
from natgrad.models.rbm.solving import TAKES_SUMS, WHOLE_SOLVERS, centering
from natgrad.models.rbm.whitening import by_eigenvectors, equivariant, whitened_steepest
from natgrad.updates.damping import constant, levenberg_marquardt
from natgrad.updates.descent import descent
from natgrad.updates.describe import of_system
from natgrad.updates.first_order import downhill, optimizer_of, rate_schedule, steepest
from natgrad.updates.kept import drift_of
from natgrad.updates.lengths import Length, divergence_ball, learning_rate
from natgrad.updates.natural import Options, natural

CHAINS, TURNS, TEMPERATURES = 100, 1, 10
THRESHOLD, SHARE = 0.01, 0.1  # of the practical penalty: which changes are large, and how many may be
_WATCHED, _FACTOR = 20, 1.1  # steps between two looks at the damping, and how it then changes

NEGATIVES: dict[str, Callable[[Any], Negative]] = {
    "cd": lambda chosen: contrastive_divergence(chosen.gibbs or TURNS),
    "pcd": lambda chosen: persistent(chosen.chains or CHAINS, chosen.gibbs or TURNS),
    "tempering": lambda chosen: tempered(
        chosen.chains or CHAINS, chosen.gibbs or TURNS, chosen.temperatures or TEMPERATURES
    ),
}


def objective_of(chosen: Any, *, factored: bool = False) -> Objective:
    """The likelihood with the negative phase of a config; its gradient may be known as a sum over samples."""
    centered = getattr(chosen, "centering", True)
    if chosen.negative == "exact":
        return enumerated_likelihood(centering=centered)
    return sampled_likelihood(NEGATIVES[chosen.negative](chosen), centering=centered, factored=factored)


def _objective(settings: Any) -> Objective:
    if settings.method == "penalty":
        return _penalized(settings.objective)
    natural_by_sums = settings.method == "natural" and settings.metric.solver in TAKES_SUMS
    return objective_of(settings.objective, factored=natural_by_sums)


def _penalized(chosen: Any) -> Objective:
    """The likelihood with a penalty of correlation, exact or as the report does it."""
    objective = objective_of(chosen)
    if not chosen.practical:
        return penalized(objective, chosen.gamma, BLOCKS[chosen.covariance])
    limits = {"threshold": chosen.threshold or THRESHOLD, "share": chosen.share or SHARE}
    return practically_penalized(objective, chosen.gamma, **limits)


def _metric(settings: Any) -> Metric:
    chosen = settings.metric
    exact = "exact" in (chosen.source, settings.objective.negative)
    return (exact_fisher if exact else sampled_fisher)(marginal=chosen.fisher == "marginal")


def _length(chosen: Any, rate: optax.Schedule) -> Length | None:
    if chosen.kl_radius:
        return divergence_ball(chosen.kl_radius, longest=learning_rate(rate))
    return learning_rate(rate) if chosen.adaptive else None


def _natural(settings: Any, rate: optax.Schedule, objective: Objective) -> Direction:
    chosen = settings.metric
    solver = WHOLE_SOLVERS[chosen.solver](chosen)
    damping = constant(chosen.damping)
    if chosen.adaptive:
        damping = levenberg_marquardt(damping, factor=_FACTOR, every=_WATCHED)
    options = Options(
        damping=damping,
        length=_length(chosen, rate),
        refresh=chosen.refresh,
        drift=drift_of(chosen, rate),
        relative=chosen.relative,
    )
    return natural(
        _metric(settings),
        centering(solver) if settings.objective.centering else solver,
        options,
        revalue=objective.revalue,
        describe=of_system,
    )


def _plain(settings: Any, rate: optax.Schedule, objective: Objective) -> Direction:
    del rate, objective
    return centered_steepest() if settings.objective.centering else steepest()


def _whitened(settings: Any, rate: optax.Schedule, objective: Objective) -> Direction:
    del rate, objective
    chosen = settings.whitening
    of_data, eigen = chosen.source == "data", settings.method == "eigen-whitening"
    enumerated = settings.objective.negative == "exact" and not of_data
    return whitened_steepest(
        by_eigenvectors(chosen.epsilon) if eigen else equivariant(chosen.rate, chosen.epsilon),
        joint_of_data if of_data else joint_of,
        averaged=eigen and not enumerated,
        refresh=chosen.refresh,
        biases=chosen.biases,
    )


BOLTZMANN_DIRECTIONS: dict[str, Callable[[Any, optax.Schedule, Objective], Direction]] = {
    "natural": _natural,
    "plain": _plain,
    "penalty": _plain,
    "whitening": _whitened,
    "eigen-whitening": _whitened,
}


def algorithm(settings: Any, stage: Any, pace: Pace) -> Algorithm:
    """The training method of a config at a pace; machines have one stage only."""
    del stage
    rate = rate_schedule(settings.optimizer, pace)
    objective = _objective(settings)
    direction = BOLTZMANN_DIRECTIONS[settings.method](settings, rate, objective)
    return descent(
        objective,
        direction,
        optimizer_of(settings.optimizer),
        scale=downhill(rate),
        average=settings.evaluation.average,
        telling=both_biases,
    )
