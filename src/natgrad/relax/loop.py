"""Generations: what is kept from one to the next, when a search ends, and the compiled loop.

A search has ended where the target is reached, the distribution has become a point, all points of several
generations have the same value, or nothing better was found for long. Values that are not numbers are
counted and rank last; a generation without a single number changes nothing.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad.relax.plan import Plan, strategy

RUNNING, TARGET, NARROW, FLAT, STALE = range(5)
REASONS = {
    RUNNING: "the budget is used up",
    TARGET: "the target was reached",
    NARROW: "the distribution has become a point",
    FLAT: "all points have the same value",
    STALE: "nothing better was found for a long time",
}
NARROWEST, FLATTEST, _ROUNDING, FLAT_GENERATIONS = 1e-13, 1e-11, 1e-15, 5
HISTORY_COLUMNS = ("evaluations", "best", "generation_best", "generation_median", "width")


class SearchProgress(NamedTuple):
    """The distribution, the best point so far, counts, and how far values and points were apart at first."""

    state: Any
    point: Float[Array, " variable"]
    value: Float[Array, ""]
    evaluations: Int[Array, ""]
    generations: Int[Array, ""]
    invalid: Int[Array, ""]
    flat: Int[Array, ""]
    stale: Int[Array, ""]
    range: Float[Array, ""]
    width: Float[Array, ""]


def first_progress(plan: Plan) -> SearchProgress:
    """Nothing evaluated yet."""
    made = strategy(plan)
    state, zero = made.init(), jnp.zeros((), int)
    best = jnp.full((), jnp.inf, jnp.zeros(()).dtype)
    nowhere = jnp.full(plan.size, jnp.nan)
    return SearchProgress(
        state, nowhere, best, zero, zero, zero, zero, zero, jnp.zeros(()), made.width(state)
    )


def decode(plan: Plan, points: Float[Array, "point variable"]) -> Float[Array, "point variable"]:
    """Points as the function sees them: the two values of binary variables, reflection into the bounds."""
    signs, reals = points[:, : plan.bits], points[:, plan.bits :]
    first, second = plan.values
    found = jnp.where(signs < 0, first, second).astype(points.dtype)
    if plan.low:
        reals = reflect(reals, np.asarray(plan.low), np.asarray(plan.high))
    return jnp.concatenate([found, reals], axis=1)


def reflect(points: Array, low: np.ndarray, high: np.ndarray) -> Array:
    """Fold the line into [low, high] like a paper strip: inside nothing changes, and f stays continuous."""
    edge, span = jnp.asarray(low, points.dtype), jnp.asarray(high - low, points.dtype)
    folded = jnp.mod(points - edge, 2 * span)
    return edge + jnp.minimum(folded, 2 * span - folded)


def ask_points(
    plan: Plan, key: PRNGKeyArray, progress: SearchProgress
) -> tuple[Any, Float[Array, "point variable"]]:
    """The next population, a pure function of key and generation, and how the function sees it."""
    drawn = strategy(plan).ask(jax.random.fold_in(key, progress.generations), progress.state)
    return drawn, decode(plan, drawn.points)


def tell(
    plan: Plan, progress: SearchProgress, drawn: Any, seen: Float[Array, "point variable"], values: Array
) -> tuple[SearchProgress, Float[Array, " column"]]:
    """One step of the distribution, and the generation's row of the history."""
    made = strategy(plan)
    usable = ~jnp.isnan(values)
    clean = jnp.where(usable, values, jnp.inf)
    moved = made.tell(progress.state, drawn, values)
    sound = jnp.any(jnp.isfinite(clean)) & _all_finite(moved)
    state = jax.tree.map(lambda new, old: jnp.where(sound, new, old), moved, progress.state)
    best = jnp.argmin(clean)
    better = clean[best] < progress.value
    top = jnp.max(jnp.where(jnp.isfinite(clean), clean, -jnp.inf))
    apart = jnp.where(jnp.isfinite(top), top - clean[best], 0.0)
    first = jnp.where(progress.range > 0, progress.range, apart)
    least = jnp.maximum(FLATTEST * jnp.minimum(first, 1.0), _ROUNDING * jnp.abs(clean[best]))
    level = (apart <= least) & sound
    after = SearchProgress(
        state,
        jnp.where(better, seen[best], progress.point),
        jnp.where(better, clean[best], progress.value),
        progress.evaluations + len(values),
        progress.generations + 1,
        progress.invalid + jnp.sum(~usable),
        jnp.where(level, progress.flat + 1, 0),
        jnp.where(better, 0, progress.stale + 1),
        first,
        progress.width,
    )
    row = [
        after.evaluations.astype(clean.dtype),
        after.value,
        clean[best],
        jnp.median(clean),
        made.width(state),
    ]
    return after, jnp.stack(row)


def ended(plan: Plan, progress: SearchProgress, target: Array) -> Int[Array, ""]:
    """The reason for which a search is over, or `RUNNING`."""
    narrow = strategy(plan).width(progress.state) <= NARROWEST * progress.width
    patience = 100 + int(100 * plan.size**1.5 / plan.points)
    checks = [
        (progress.value <= target, TARGET),
        (narrow, NARROW),
        (progress.flat >= FLAT_GENERATIONS, FLAT),
        (progress.stale > patience, STALE),
    ]
    return jnp.select([check for check, _ in checks], [jnp.asarray(reason) for _, reason in checks], RUNNING)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def generations(
    plan: Plan,
    function: Callable[[Array], Array],
    room: int,
    key: PRNGKeyArray,
    progress: SearchProgress,
    limit: Array,
    target: Array,
) -> tuple[SearchProgress, Float[Array, "generation column"]]:
    """At most `limit` generations (no more than `room`) of a function of whole populations, compiled."""

    def going(carry: tuple[SearchProgress, Array, Array]) -> Array:
        progress, _, count = carry
        return (count < limit) & (ended(plan, progress, target) == RUNNING)

    def generation(carry: tuple[SearchProgress, Array, Array]) -> tuple[SearchProgress, Array, Array]:
        progress, rows, count = carry
        drawn, seen = ask_points(plan, key, progress)
        progress, row = tell(plan, progress, drawn, seen, function(seen).astype(seen.dtype))
        return progress, rows.at[count].set(row), count + 1

    rows = jnp.full((room, len(HISTORY_COLUMNS)), jnp.nan)
    progress, rows, _ = jax.lax.while_loop(going, generation, (progress, rows, jnp.zeros((), int)))
    return progress, rows


def _all_finite(tree: Any) -> Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
