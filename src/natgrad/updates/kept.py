"""What a natural direction carries from step to step, and when its metric is renewed.

A metric serves `refresh` steps at most [nrws sec. 6.2]. With a `Drift` it serves until the model has moved:

    moved = sum over steps since the last renewal of (1/2) step^T F step,     renewed where moved > bound

in nats, to second order, by the metric that is kept; a step knows d^T F d of its own direction d. So a metric
is fresh while steps are long, and rarely renewed when they are short.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natgrad import tree
from natgrad.core import Carry, Info, Model, Numbers


class Drift(NamedTuple):
    """How many nats a model may move before its metric is renewed.

    `rate` is the step's length along its direction, as a function of the number of steps, where the direction
    itself has none.
    """

    bound: float
    rate: Callable[[Array], Any]


def drift_of(chosen: Any, rate: Callable[[Array], Any]) -> Drift | None:
    """The drift of a section of settings, for steps of a rate."""
    return Drift(chosen.renewal_kl, rate) if chosen.renewal_kl else None


class Travel(NamedTuple):
    """How far the model has moved since the metric was renewed, in nats, and how often it was renewed."""

    moved: Float[Array, ""]
    renewals: Int[Array, ""]


class Kept(NamedTuple):
    """For the next step; what is not used is empty.

    Attributes:
        steps: how many there were; age: how many the factor has served.
        factor: what the solver prepared; after: when its LAPACK calls were done (see `Estimate`).
        metric: the metric's carry; level: the damping's.
        gradient: the averaged one; direction: the last one.
        travel: where a drift renews the metric.
    """

    steps: Int[Array, ""]
    age: Int[Array, ""]
    factor: Any
    after: Any
    metric: Carry
    level: Float[Array, ""]
    gradient: Model
    direction: Model
    travel: Any = ()


def first_travel(drift: Drift | None, like: Float[Array, ""]) -> Any:
    """The travel before the first step; empty where nothing depends on it."""
    return () if drift is None else Travel(jnp.zeros_like(like), jnp.zeros((), jnp.int32))


def renewed(kept: Kept, renew: Callable[[], Kept], drift: Drift | None = None) -> Kept:
    """What is kept, renewed where it is due: a loop of one turn at most; a conditional would copy it."""
    due = kept.age == 0
    if drift is not None:
        due = due | (kept.travel.moved > drift.bound)

    def once(carried: Any) -> Any:
        del carried
        return jnp.zeros((), bool), _restarted(renew())

    return jax.lax.while_loop(lambda carried: carried[0], once, (due, kept))[1]


def _restarted(kept: Kept) -> Kept:
    """With a metric of age zero, from which the model has not moved yet."""
    if kept.travel == ():
        return kept._replace(age=jnp.zeros_like(kept.age))
    moved, renewals = kept.travel
    return kept._replace(age=jnp.zeros_like(kept.age), travel=Travel(jnp.zeros_like(moved), renewals + 1))


def traveled(kept: Kept, drift: Drift | None, rate: Array | None, curvature: Array) -> Any:
    """The travel after a step of that rate along a direction whose d^T F d is the curvature."""
    if drift is None or kept.travel == ():
        return kept.travel
    length = drift.rate(kept.steps) if rate is None else rate
    step = 0.5 * jnp.asarray(length, curvature.dtype) ** 2 * curvature
    return kept.travel._replace(moved=kept.travel.moved + step.astype(kept.travel.moved.dtype))


def keep_metric(taken: Array, before: Kept, after: Kept) -> Kept:
    """The factor stays where it is: after a refused step it is made again, with a renewed damping.

    The direction of a refused step, and of the one before it, are no place to start from.
    """
    small = lambda kept: kept._replace(factor=())  # noqa: E731
    forgotten = small(before)._replace(direction=tree.zeros(before.direction))
    chosen = tree.select(taken, small(after), forgotten)
    age = jnp.where(taken, after.age, 0)
    return chosen._replace(
        steps=after.steps, level=after.level, age=age, factor=after.factor, travel=after.travel
    )


def with_age(describe: Callable[[Info], Numbers]) -> Callable[[Info], Numbers]:
    """A description, and for the trace: the steps that a metric had served before this one, its travel."""

    def described(info: Info) -> Numbers:
        found, travel = {"metric_age": info.evidence.age}, info.evidence.travel
        if travel != ():
            found |= {"metric_moved": travel.moved, "metric_renewals": travel.renewals}
        kind = info.value.dtype
        return describe(info) | {name: value.astype(kind) for name, value in found.items()}

    return described
