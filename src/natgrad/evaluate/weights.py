"""Means of importance weights from their logarithms: how large, how certain, and whether that is believable.

    log m = log (1/N) sum_s w_s,      var(log m) ~ sum_s w_s^2 / (sum_s w_s)^2 - 1/N,
    effective samples = (sum_s w_s)^2 / sum_s w_s^2

Nothing here knows what the weights are weights of. They are added up as they are drawn, some samples of
every row at a time, so any number fits into memory. The variance is the delta method's, which is far too
small where weights that were not drawn would have decided the mean. So the largest weights are kept, and a
generalized Pareto distribution is fitted to them [psis]: from the shape k = 1/2 on weights have no variance,
and above 0.7 no affordable number of samples makes up for it. Rows and samples are taken in portions that the
memory holds.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad.devices import everywhere, has_mesh
from natgrad.errors import InputError

HEAVY = 0.7  # shapes above it make an estimate useless [psis]
FEWEST = 25  # weights in a tail, below which its shape is not estimated
FEW = 10  # effective samples of a row, below which the delta method is not reliable
SAME = 1e-3  # relative: weights this close may be one weight, rounded differently
SPACE = 4  # weights are collected until they are so many times those kept; then the largest are selected
ROWS, DRAWS = 32, 2048  # at a time, at most: more leave the cache, and take twice the time

LogWeights = Float[Array, "row sample"]


class Running(NamedTuple):
    """Log-sums of every row's weights and of their squares, and its largest log-weights, descending."""

    first: Float[Array, " row"]
    second: Float[Array, " row"]
    largest: Float[Array, "row kept"]


class RowStatistics(NamedTuple):
    """What the weights of every row tell: the log of their mean, its variance, their number and tail.

    `pareto_k` is None where the samples are too few for it, or no tails were kept.
    """

    log_mean: np.ndarray
    variance: np.ndarray
    effective_samples: np.ndarray
    pareto_k: np.ndarray | None


class Likelihood(NamedTuple):
    """The mean log-likelihood of some rows, in nats.

    `se` is its standard error over rows (other rows from the same source), `mc_se` its sampling error (other
    samples for the same rows, by the delta method). `effective_samples` and `pareto_k`, the shape of the
    tail of the weights (None if they are too few), are those of every row, as `rows` are its likelihoods.
    """

    mean: float
    se: float
    mc_se: float
    samples: int
    rows: np.ndarray
    effective_samples: np.ndarray
    pareto_k: np.ndarray | None

    @property
    def heavy(self) -> float | None:
        """The share of rows whose weights have a heavy tail, k > 0.7."""
        return None if self.pareto_k is None else float(np.mean(self.pareto_k > HEAVY))

    @property
    def doubtful(self) -> float:
        """The share of rows whose sampling error is not reliable: heavy tails, few effective samples."""
        heavy = False if self.pareto_k is None else self.pareto_k > HEAVY
        return float(np.mean((self.effective_samples < FEW) | heavy))


def streamed(
    draw: Callable[[Int[Array, ""]], LogWeights], samples: Int[Array, ""] | int, *, chunk: int, kept: int = 0
) -> Running:
    """Add up exactly `samples` log-weights of every row, to be called inside jit.

    Args:
        draw: from the number of a turn, 0, 1, ..., to the next `chunk` log-weights of every row.
        samples: how many in all, which is not compiled in; what the last turn draws beyond is not counted.
        chunk: how many at a time.
        kept: how many of the largest to keep, see `kept_for`; 0 for none.
    """
    draw = jax.jit(draw, inline=True)  # traced once, here and in the loop
    drawn = jax.eval_shape(draw, jnp.zeros((), jnp.int32))
    turns = max(1, SPACE * kept // chunk)  # from one selection of the largest to the next

    def body(turn: Array, sums: Running) -> Running:
        counted = turn * chunk + jnp.arange(chunk) < samples
        log_weights = jnp.where(counted, draw(turn), -jnp.inf)
        first, second = (jax.nn.logsumexp(power * log_weights, axis=1) for power in (1.0, 2.0))
        largest = _collected(sums.largest, log_weights, turn % turns, turns) if kept else sums.largest
        return Running(jnp.logaddexp(sums.first, first), jnp.logaddexp(sums.second, second), largest)

    nothing = jnp.full(drawn.shape[:1], -jnp.inf, drawn.dtype)
    space = jnp.full((*nothing.shape, kept + turns * chunk if kept else 0), -jnp.inf, drawn.dtype)
    found = jax.lax.fori_loop(0, (samples + chunk - 1) // chunk, body, Running(nothing, nothing, space))
    return found._replace(largest=jax.lax.top_k(found.largest, kept)[0])


def _collected(space: Array, log_weights: LogWeights, place: Array, turns: int) -> Array:
    """The space with new log-weights at their place; after the last place, with the largest of all first."""
    chunk = log_weights.shape[1]
    kept = space.shape[1] - turns * chunk
    space = jax.lax.dynamic_update_slice(space, log_weights, (0, kept + place * chunk))

    def selected() -> Array:
        return jnp.full_like(space, -jnp.inf).at[:, :kept].set(jax.lax.top_k(space, kept)[0])

    return jax.lax.cond(place == turns - 1, selected, lambda: space)


def row_statistics(found: Running, samples: int) -> RowStatistics:
    """What sums over that many samples tell of every row, in float64."""
    first, second, largest = (np.asarray(part, np.float64) for part in found)
    variance = np.maximum(np.exp(second - 2 * first) - 1 / samples, 0.0)
    tails = pareto_k(largest, samples) if largest.shape[1] else None
    return RowStatistics(first - np.log(samples), variance, np.exp(2 * first - second), tails)


def likelihood(rows: RowStatistics, samples: int) -> Likelihood:
    """The mean over rows of their log-means, with its two errors."""
    values, number = rows.log_mean, len(rows.log_mean)
    se = float(values.std(ddof=1) / np.sqrt(number)) if number > 1 else float("nan")
    mc_se = float(np.sqrt(rows.variance.sum()) / number)
    return Likelihood(float(values.mean()), se, mc_se, samples, values, rows.effective_samples, rows.pareto_k)


def tail_length(samples: int) -> int:
    """How many of the largest weights are the tail, min(N/5, 3 sqrt N) [psis]; 0 if these are too few.

    >>> [tail_length(samples) for samples in (100, 200, 1000, 10_000)]
    [0, 40, 95, 300]
    """
    length = math.ceil(min(samples / 5, 3 * math.sqrt(samples)))
    return length if length >= FEWEST else 0


def kept_for(samples: int) -> int:
    """How many of the largest weights to keep: the tail and the one below it, in few sizes to compile.

    >>> [kept_for(samples) for samples in (100, 200, 1000, 10_000)]
    [0, 64, 128, 512]
    """
    length = tail_length(samples)
    return 1 << length.bit_length() if length else 0


def pareto_k(largest: Float[np.ndarray, "row kept"], samples: int) -> Float[np.ndarray, " row"] | None:
    """The shape of every row's tail from its largest log-weights, descending; None if these are too few."""
    length = tail_length(samples)
    return np.array([_tail_shape(row[: length + 1]) for row in largest]) if length else None


def _tail_shape(tail: Float[np.ndarray, " length"]) -> float:
    """The shape k of a tail above its last log-weight, drawn toward 1/2 by ten more observations [psis].

    Weights of discrete samples repeat. Those equal to the last one are not part of the tail, and if all are
    equal there is none. Then, and where it would be smaller still, k is -1, that of a uniform distribution.
    """
    if not np.isfinite(tail).all():
        return math.nan
    above = tail[tail > tail[-1] + SAME] - tail[-1]
    if not len(above):
        return -1.0
    excess = np.exp(above - above[0]) - np.exp(-above[0])  # in units of the largest weight
    number = len(excess)
    shape = generalized_pareto(np.maximum(excess, 1e-300))
    return max(-1.0, (number * shape + 10 * 0.5) / (number + 10))


def generalized_pareto(values: Float[np.ndarray, " number"]) -> float:
    """The shape k of a generalized Pareto distribution from draws of it, all positive [zhang2009].

        p(x) = (1/sigma) (1 + k x / sigma)^(-1/k - 1)

    With b = -k / sigma the best k is the mean of log(1 - b x). The estimate of b is the mean of a grid,
    weighted by the likelihood with that k.
    """
    ordered = np.sort(values)
    number, size = len(ordered), 30 + int(np.sqrt(len(ordered)))
    quartile = ordered[max(0, int(number / 4 + 0.5) - 1)]
    steps = 1 - np.sqrt(size / (np.arange(1, size + 1) - 0.5))
    grid = 1 / ordered[-1] + steps / (3 * quartile)
    grid = np.where(grid == 0, 1e-12 / ordered[-1], grid)  # the exponential distribution: k / b is 0 / 0
    shapes = np.log1p(-grid[:, None] * ordered).mean(axis=1)
    likelihoods = number * (np.log(-grid / shapes) - shapes - 1)
    weights = np.exp(likelihoods - likelihoods.max())
    return float(np.log1p(-(grid @ weights / weights.sum()) * ordered).mean())


PortionSums = Callable[[PRNGKeyArray, Float[Array, "visible row"]], Running]


def portion_sizes(numbers: int, total: int, samples: int, memory_mb: float) -> tuple[int, int]:
    """Rows and samples at a time: what a processor's cache holds, and no more than fits the memory.

    `numbers` is how many a draw stores, `total` how many rows there are.
    """
    if not memory_mb > 0:
        raise InputError(f"memory_mb: expected a number greater than 0, got {memory_mb}")
    room = max(1, int(memory_mb * 2**20 / (4 * 4 * numbers)))
    rows = min(total, max(1, room // min(samples, 64)), ROWS)
    return rows, max(1, min(samples, room // rows, DRAWS // rows))


def over_rows(
    estimate: PortionSums, key: PRNGKeyArray, visible: Float[Array, "visible row"], rows: int, samples: int
) -> RowStatistics:
    """What the weights of all rows tell, `rows` of them at a time, each portion with a key of its own."""
    return row_statistics(in_portions(estimate, key, visible, rows, axis=1), samples)


def in_portions(
    function: Callable[[PRNGKeyArray, Array], Any],
    key: PRNGKeyArray,
    rows: Array,
    size: int,
    *,
    axis: int = 0,
) -> Any:
    """A function of (key, rows) on all rows, `size` at a time: its arrays [row, ...] joined, as NumPy's.

    Portions are always as large: one compilation serves, whatever the number of rows.
    """
    total, found = rows.shape[axis], []
    whole = everywhere if has_mesh() else lambda tree: tree
    for start in range(0, total, size):
        own = _folded(key, np.uint32(start))
        places = np.arange(start, start + size) % total  # the last portion is filled up, then cut
        portion = rows if size == total else _taken(rows, places, axis)
        found.append(jax.tree.map(np.asarray, whole(function(own, portion))))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:total], *found)


_folded = jax.jit(jax.random.fold_in)
_taken = jax.jit(lambda rows, places, axis: jnp.take(rows, places, axis), static_argnums=2)
