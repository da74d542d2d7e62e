"""The exact Fisher of a Helmholtz machine: block-diagonal, one block per unit [nrws prop. 1].

Its blocks are expectations [nrws eq. 23-24]; here are the ways to estimate them from what a step
has drawn anyway. For generation: *dreams* are samples of the model itself, so their mean is its
Fisher; *wake* samples weighted by importance estimate the mean over data x and p(h | x), which is
the model's Fisher only where p(x) is the data's distribution. For recognition: wake samples average over
data, dreams over the model's own fantasies; mixed are both.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad.core import Carry, Metric
from natgrad.devices import evenly_spaced
from natgrad.layers.bernoulli import Values, flat
from natgrad.metrics.blocks import UnitBlocks
from natgrad.metrics.layered import LayeredFisher
from natgrad.models.helmholtz import machine
from natgrad.models.helmholtz.machine import Helmholtz, Pass
from natgrad.models.helmholtz.phases import Phases
from natgrad.tree import map_layers
from natgrad.updates.parts import Part

GENERATION, RECOGNITION = Part(("prior", "generation")), Part(("recognition",))
RowWeights = Float[Array, "row sample"]
_Blocks = tuple[UnitBlocks, ...]


def generation_from_dreams(limit: int | None = None) -> Metric:
    """E over p(x, h), from dreams [nrws eq. 25-26], with at most `limit` rows."""

    def blocks(key: PRNGKeyArray, drawn: Phases) -> _Blocks:
        del key
        dreams = drawn.dreams
        return _blocks(dreams.values[1:], dreams.generation[:-1], even(drawn.weights), limit)

    return _generation(blocks)


def generation_from_wake(limit: int | None = None) -> Metric:
    """E over p_data(x) p(h | x), from weighted wake samples [nrws eq. 29-30].

    Of more rows than `limit`, each datum keeps equally many samples, drawn by their weights.
    """

    def blocks(key: PRNGKeyArray, drawn: Phases) -> _Blocks:
        values, logits = drawn.wake.values[1:], drawn.wake.generation[:-1]
        if limit is None or limit >= drawn.weights.size:
            weights = drawn.weights / len(drawn.weights)  # [nrws eq. 29] has S times less
            return _blocks(values, logits, weights, None)
        chosen = resampled(key, drawn.weights, limit)
        pick = lambda stack: tuple(_picked(each, chosen) for each in stack)  # noqa: E731
        return _blocks(pick(values), pick(logits), even(chosen.astype(drawn.weights.dtype)), None)

    return _generation(blocks)


def recognition_from_dreams(limit: int | None = None) -> Metric:
    """E over p(x, h) of recognition's curvature, the metric of the sleep phase."""
    return _recognition(lambda drawn: _recognized(drawn.dreams, even(drawn.weights), limit))


def recognition_from_wake(limit: int | None = None) -> Metric:
    """E over p_data(x) q(h | x), from wake samples [nrws eq. 27-28]: one row per datum in the first layer."""
    return _recognition(lambda drawn: _recognized(drawn.wake, even(drawn.weights), limit))


def recognition_mixed(limit: int | None = None) -> Metric:
    """The mean of both, each from half of the rows: recognition learns from wake samples and from dreams."""
    half = None if limit is None else max(1, limit // 2)

    def blocks(drawn: Phases) -> _Blocks:
        weights = even(drawn.weights) / 2
        return map_layers(
            _joined, _recognized(drawn.wake, weights, half), _recognized(drawn.dreams, weights, half)
        )

    return _recognition(blocks)


def from_values(metric: Metric) -> Metric:
    """The same, with logits computed again: a step that keeps its metric need not store them for it."""

    def measure(
        key: PRNGKeyArray, carry: Carry, model: Helmholtz, drawn: Phases
    ) -> tuple[LayeredFisher, Carry]:
        again = lambda part: machine.evaluated(model, part.values)  # noqa: E731
        repeated = drawn._replace(wake=again(drawn.wake), dreams=again(drawn.dreams))
        return metric.measure(key, carry, model, repeated)

    return Metric(metric.init, measure)


def resampled(key: PRNGKeyArray, weights: RowWeights, limit: int) -> Int[Array, "datum kept"]:
    """For each of up to `limit` data equally many of its samples, drawn by their weights.

    Systematic resampling: one uniform number shifts equally spaced points of the cumulated weights, so that a
    sample is kept as often as its weight says, on average and up to one.
    """
    data, kept = fewer(weights.shape, limit)
    shift = jax.random.uniform(key, (data, 1), weights.dtype)
    points = (jnp.arange(kept, dtype=weights.dtype) + shift) / kept
    reached = jnp.cumsum(evenly_spaced(weights, 0, data), axis=1)
    passed = (reached[:, None] <= points[..., None] * reached[:, None, -1:]).sum(axis=2)
    return jnp.minimum(passed, weights.shape[1] - 1)


def fewer(shape: tuple[int, ...], limit: int | None) -> tuple[int, int]:
    """How many data, and samples of each, make up at most `limit` rows: as many data as possible.

    >>> fewer((32, 10), 64), fewer((32, 10), 20), fewer((32, 10), None)
    ((32, 2), (20, 1), (32, 10))
    """
    rows, samples = shape
    if limit is None:
        return rows, samples
    return min(rows, limit), min(samples, max(1, limit // rows))


def even(weights: Array) -> RowWeights:
    """The same weight for every row, one in all."""
    return jnp.full_like(weights, 1 / weights.size)


def curvature(logit: Array) -> Array:
    """p (1 - p), the derivative of the logistic function; an exponential that overflows leaves zero."""
    return 1 / (2 + jnp.exp(logit) + jnp.exp(-logit))


def _generation(blocks: Callable[[PRNGKeyArray, Phases], _Blocks]) -> Metric:
    def measure(
        key: PRNGKeyArray, carry: Carry, model: Helmholtz, drawn: Phases
    ) -> tuple[LayeredFisher, Carry]:
        found = {"prior": curvature(model.prior), "generation": blocks(key, drawn)}
        return LayeredFisher(found), carry

    return Metric(lambda key, model, drawn: (), measure)


def _recognition(blocks: Callable[[Phases], _Blocks]) -> Metric:
    def measure(
        key: PRNGKeyArray, carry: Carry, model: Helmholtz, drawn: Phases
    ) -> tuple[LayeredFisher, Carry]:
        del key, model
        return LayeredFisher({"recognition": blocks(drawn)}), carry

    return Metric(lambda key, model, drawn: (), measure)


def _recognized(drawn: Pass, weights: RowWeights, limit: int | None) -> _Blocks:
    """The blocks of recognition from the samples of one phase."""
    return _blocks(drawn.values[:-1], drawn.recognition, weights, limit)


def _joined(one: UnitBlocks, other: UnitBlocks) -> UnitBlocks:
    """The sum of two Fishers of the same units, as all their rows."""
    side_by_side = lambda left, right: jnp.concatenate([left, right], axis=1)  # noqa: E731
    return UnitBlocks(side_by_side(one.inputs, other.inputs), side_by_side(one.curvature, other.curvature))


def _picked(array: Values, chosen: Int[Array, "datum kept"]) -> Values:
    return jnp.take_along_axis(evenly_spaced(array, 1, len(chosen)), chosen[None], axis=2)


def _blocks(
    inputs: tuple[Values, ...], logits: tuple[Values, ...], weights: RowWeights, limit: int | None
) -> _Blocks:
    return map_layers(lambda value, logit: _layer(value, logit, weights, limit), inputs, logits)


def _layer(inputs: Values, logit: Values, weights: RowWeights, limit: int | None) -> UnitBlocks:
    """The rows of one layer; samples that share inputs and logits are one row, of their joint weight.

    Of rows of equal weight any are as good as others; those of a mesh come from all its devices.
    """
    if inputs.shape[2] == 1:
        weights = weights.sum(axis=1, keepdims=True)
    data, samples = fewer(weights.shape, limit)
    some = [evenly_spaced(array, 1, data)[:, :, :samples] for array in (weights[None], inputs, logit)]
    kept, values, logits = map(flat, some)
    kept = kept * (weights.sum() / kept.sum())  # fewer rows, the same total weight
    return UnitBlocks(values, kept * curvature(logits))
