"""The exact Fisher of a Helmholtz machine: block-diagonal, one block per unit [nrws prop. 1].

Its blocks are expectations [nrws eq. 23-24]; here are the ways to estimate them from what a step
has drawn anyway. For generation: *dreams* are samples of the model itself, so their mean is its
Fisher; *wake* samples weighted by importance estimate the mean over data x and p(h | x), which is
the model's Fisher only where p(x) is the data's law. For recognition: wake samples average over
data, dreams over the model's own fantasies.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.layers.bernoulli import Layer, Values
from natgrad.metrics.blocks import Blocks, DenseBlocks, UnitBlocks
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.models.helmholtz.phases import Phases
from natgrad.tree import blend, map_layers, pytree, zeros

RowWeights = Float[Array, "sample row"]


@pytree
class Fisher:
    """The metric of a whole machine: the prior's diagonal and every layer's blocks.

    None stands for a network that keeps the Euclidean metric.
    """

    prior: Float[Array, " top"] | None
    generation: tuple[Blocks, ...] | None
    recognition: tuple[Blocks, ...] | None

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks that have a metric."""
        return tuple(name for name in ("generation", "recognition") if getattr(self, name) is not None)

    def layers(self, part: Any) -> tuple[Any, ...]:
        """What a part of a step holds for every layer of those networks, generation's first."""
        return tuple(layer for name in self.networks for layer in getattr(part, name))

    def mv(self, vector: Helmholtz) -> Helmholtz:
        """F v."""

        def network(stack: tuple[Blocks, ...] | None, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
            return layers if stack is None else map_layers(lambda b, v: b.mv(v), stack, layers)

        prior = vector.prior if self.prior is None else self.prior * vector.prior
        generation = network(self.generation, vector.generation)
        return Helmholtz(prior, generation, network(self.recognition, vector.recognition), vector.coding)


class Metric(NamedTuple):
    """From the model and what was drawn to its Fisher operator; what is carried are averages, if any."""

    init: Callable[[Helmholtz, Phases], Any]
    measure: Callable[[Any, Helmholtz, Phases], tuple[Fisher, Any]]


Generation = tuple[Float[Array, " top"] | None, tuple[UnitBlocks, ...] | None]
GenerationSource = Callable[[Helmholtz, Phases, int | None], Generation]
RecognitionSource = Callable[[Helmholtz, Phases, int | None], tuple[UnitBlocks, ...] | None]


def fisher(generation: GenerationSource, recognition: RecognitionSource, limit: int | None = None) -> Metric:
    """The metric of a machine from a source for each network, with at most `limit` rows."""

    def measure(carry: Any, model: Helmholtz, drawn: Phases) -> tuple[Fisher, Any]:
        prior, blocks = generation(model, drawn, limit)
        return Fisher(prior, blocks, recognition(model, drawn, limit)), carry

    return Metric(lambda model, drawn: (), measure)


def averaged(metric: Metric, decay: float) -> Metric:
    """An exponential average over steps of the (now dense) blocks; the first step starts it."""

    def dense(model: Helmholtz, drawn: Phases) -> Fisher:
        found, _ = metric.measure((), model, drawn)
        stack = lambda blocks: None if blocks is None else tuple(DenseBlocks(b.dense()) for b in blocks)  # noqa: E731
        return Fisher(found.prior, stack(found.generation), stack(found.recognition))

    def init(model: Helmholtz, drawn: Phases) -> Any:
        return jnp.zeros((), jnp.int32), zeros(jax.eval_shape(dense, model, drawn))

    def measure(carry: Any, model: Helmholtz, drawn: Phases) -> tuple[Fisher, Any]:
        count, mean = carry
        mean = blend(jnp.where(count == 0, 0.0, decay), mean, dense(model, drawn))
        return mean, (count + 1, mean)

    return Metric(init, measure)


def generation_from_dreams(model: Helmholtz, drawn: Phases, limit: int | None = None) -> Generation:
    """E over p(x, h), from dreams [nrws eq. 25-26]."""
    dreams = drawn.dreams
    weights = _even(drawn.weights)
    return _curvature(model.prior), _blocks(dreams.values[1:], dreams.generation[:-1], weights, limit)


def generation_from_wake(model: Helmholtz, drawn: Phases, limit: int | None = None) -> Generation:
    """E over p_data(x) p(h | x), from weighted wake samples [nrws eq. 29-30]."""
    wake = drawn.wake
    weights = drawn.weights / drawn.weights.shape[1]  # differs from [nrws eq. 29], which is S times smaller
    return _curvature(model.prior), _blocks(wake.values[1:], wake.generation[:-1], weights, limit)


def generation_as_published(model: Helmholtz, drawn: Phases, limit: int | None = None) -> Generation:
    """What the published code computes: dreams, weighted by the weights of unrelated wake samples, over n."""
    dreams = drawn.dreams
    weights = drawn.weights / drawn.weights.size
    prior = _curvature(model.prior) / drawn.weights.shape[0]
    return prior, _blocks(dreams.values[1:], dreams.generation[:-1], weights, limit)


def recognition_from_dreams(
    model: Helmholtz, drawn: Phases, limit: int | None = None
) -> tuple[UnitBlocks, ...]:
    """E over p(x, h) of recognition's curvature, the metric of the sleep phase."""
    del model
    return _blocks(drawn.dreams.values[:-1], drawn.dreams.recognition, _even(drawn.weights), limit)


def recognition_from_wake(
    model: Helmholtz, drawn: Phases, limit: int | None = None
) -> tuple[UnitBlocks, ...]:
    """E over p_data(x) q(h | x), from wake samples [nrws eq. 27-28]: one row per datum in the first layer."""
    del model
    return _blocks(drawn.wake.values[:-1], drawn.wake.recognition, _even(drawn.weights), limit)


def generation_plain(model: Helmholtz, drawn: Phases, limit: int | None = None) -> Generation:
    """No metric: generation keeps the plain gradient."""
    del model, drawn, limit
    return None, None


def recognition_plain(model: Helmholtz, drawn: Phases, limit: int | None = None) -> None:
    """No metric: recognition keeps the plain gradient."""
    del model, drawn, limit


def _blocks(
    inputs: tuple[Values, ...], logits: tuple[Values, ...], weights: RowWeights, limit: int | None
) -> tuple[UnitBlocks, ...]:
    return map_layers(lambda value, logit: _layer(value, logit, weights, limit), inputs, logits)


def _layer(inputs: Values, logit: Values, weights: RowWeights, limit: int | None) -> UnitBlocks:
    """The rows of one layer; samples that share inputs and logits are one row, of their joint weight."""
    if inputs.shape[1] == 1:
        weights = weights.sum(axis=0, keepdims=True)
    flat = weights.reshape(-1)
    rows = slice(None, limit)
    kept = flat[rows] * (flat.sum() / flat[rows].sum())  # fewer rows, the same total weight
    curvature = kept * _curvature(logit.reshape(logit.shape[0], -1)[:, rows])
    return UnitBlocks(inputs.reshape(inputs.shape[0], -1)[:, rows], curvature)


def _even(weights: RowWeights) -> RowWeights:
    return jnp.full_like(weights, 1 / weights.size)


def _curvature(logit: Array) -> Array:
    """p (1 - p), the derivative of the logistic function; an exponential that overflows leaves zero."""
    return 1 / (2 + jnp.exp(logit) + jnp.exp(-logit))
