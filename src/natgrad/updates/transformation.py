"""A natural direction as an optax transformation."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from natgrad import tree
from natgrad.core import Estimate, Metric, Model, Solver
from natgrad.errors import InputError, check_counts
from natgrad.layers.task import check_parameters
from natgrad.updates import natural as directions
from natgrad.updates.damping import Damping, constant, scheduled
from natgrad.updates.lengths import learning_rate
from natgrad.updates.natural import Evidence, Kept, Options, no_evidence

DampingLike = Damping | float | Callable[[Any], Any]


class NaturalState(NamedTuple):
    """What the next update needs, and for a reader the evidence of the last one."""

    kept: Kept
    evidence: Evidence


_Read = Callable[[Model, Model | None, dict[str, Any]], tuple[Any, Callable[[Model], Array]]]


def measured(
    metric: Metric, solver: Solver, chosen: Options, read: _Read, seed: int, like: Any = None
) -> optax.GradientTransformationExtraArgs:
    """The transformation of a metric; `read` makes a batch and the loss of what `update` was given.

    `like` has the shapes of a batch.
    """

    def init(params: Model) -> NaturalState:
        check_parameters(params)
        direction = directions.natural(metric, solver, chosen)
        kept = direction.init(jax.random.key(seed), params, Estimate(jnp.zeros(()), params, like, {}))
        return NaturalState(kept, no_evidence(kept.level))

    def update(
        updates: Model, state: NaturalState, params: Model | None = None, **extra: Any
    ) -> tuple[Model, NaturalState]:
        batch, value = read(updates, params, extra)
        direction = directions.natural(metric, solver, chosen, revalue=lambda model, rows: value(model))
        key = jax.random.fold_in(jax.random.key(seed), state.kept.steps)
        estimate = Estimate(jnp.zeros_like(state.kept.level), updates, batch, {})
        found = direction.apply(key, state.kept, params, estimate)
        step = found.vector if found.length is None else tree.scale(found.length, found.vector)
        kept = direction.keep(jnp.asarray(found.sound), state.kept, found.carry)
        step = tree.select(found.sound, step, tree.zeros(step))
        return step, NaturalState(kept, found.evidence.evidence)

    return optax.GradientTransformationExtraArgs(init, update)


def damping_from(given: DampingLike) -> Damping:
    """A damping, or that of a number, or of a schedule."""
    if isinstance(given, Damping):
        return given
    return scheduled(given) if callable(given) else constant(given)


def options_of(
    damping: DampingLike | None,
    options: Options | None,
    whose: str,
    advice: str = "use 1",
    *,
    kept: bool = False,
) -> Options:
    """Damping and length of a transformation; it moves by a whole step, if nothing else is said."""
    if options is None:
        return Options(damping=damping_from(1e-2 if damping is None else damping), length=learning_rate(1.0))
    if damping is not None:
        raise InputError(f"{whose} takes damping as part of `options` or by itself, got both; give one")
    check_counts(refresh=options.refresh)
    if options.refresh > 1 and not kept:
        raise InputError(
            f"{whose} cannot keep a metric whose shapes it does not know, got refresh {options.refresh}; "
            f"{advice}"
        )
    return options if options.length is not None else options._replace(length=learning_rate(1.0))
