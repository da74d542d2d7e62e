"""Variational autoencoders as a kind of model: from a config and its data to what a session trains."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from natgrad.core import Kind, Problem, Sheet, State
from natgrad.data import Dataset, batches
from natgrad.layers import generator
from natgrad.layers.bernoulli import Layer, logits_of_means
from natgrad.layers.convolution import Convolutional, fresh_convolutional
from natgrad.layers.perceptron import Activation, Perceptron, fresh_perceptron
from natgrad.layers.transposed import Transposed, fresh_transposed
from natgrad.models.vae import methods
from natgrad.models.vae.machine import Rows, Variational, fantasies, visible_means
from natgrad.models.vae.monitor import HeldOutBounds
from natgrad.models.vae.panels import latent_panels
from natgrad.models.vae.spec import Shape
from natgrad.models.vae.trained import TrainedVariational
from natgrad.training.checks import independent_loss
from natgrad.updates.first_order import rate_schedule


def _tanh(sums: Array) -> Array:  # functions of JAX cannot be pickled
    return jnp.tanh(sums)


def _relu(sums: Array) -> Array:
    return jax.nn.relu(sums)


def _softplus(sums: Array) -> Array:
    return jax.nn.softplus(sums)


HIDDEN_UNITS: dict[str, tuple[Activation, float]] = {
    "tanh": (_tanh, 1.0),
    "relu": (_relu, math.sqrt(2)),
    "softplus": (_softplus, 1.0),
}
"""Activations, and the factor on initial weights that keeps the size of what passes through many layers."""
_WIDTH = 5  # of filters
_PICTURES = 25
_VARIES = 20.0  # nats: a bound of few units varies as much from batch to batch


def fresh(key: PRNGKeyArray, settings: Any, shape: Shape) -> Variational:
    """New networks of a config; generation begins with the data's means, whatever the latent vector."""
    chosen = settings.model
    activation, gain = HIDDEN_UNITS[chosen.activation]
    key_up, key_down = jax.random.split(key)
    up, down = (_filtered if chosen.filters else _dense)((key_up, key_down), chosen, shape)
    gaussian, kind = chosen.visible == "gaussian", jnp.zeros(()).dtype
    means = np.asarray(shape.means)
    bias = jnp.asarray(means if gaussian else logits_of_means(means, shape.rows), kind)
    learned = gaussian and chosen.deviation is None
    return Variational(
        recognition=_gained(up, gain),
        generation=_with_bias(_gained(down, gain), bias),
        noise=jnp.asarray(2 * math.log(shape.spread), kind) if learned else (),
        deviation=chosen.deviation,
        activation=activation,
        image=shape.image_shape if chosen.filters else None,
    )


def problem(key: PRNGKeyArray, settings: Any, dataset: Dataset) -> Problem:
    """What a session trains for a config; the key is that of evaluations."""
    lesson = methods.LESSONS[settings.objective.generation]
    held_out = HeldOutBounds(key, settings, dataset, lesson)
    shape = Shape.of(settings, dataset)
    arrays = jax.eval_shape(lambda: fresh(generator.key(0), settings, shape))
    binary = settings.model.visible == "bernoulli"
    return Problem(
        rows=batches.rows_of(dataset),
        number=len(dataset.train),
        draw=_rows_first(settings.training.batch_size),
        algorithm=partial(methods.algorithm, settings),
        rate=partial(rate_schedule, settings.optimizer),
        paced=True,
        stages=settings.objective.stages,
        operations=partial(_operations, settings, arrays),
        ignorance=max(_VARIES, dataset.visible * (math.log(2) if binary else 1.5)),
        independent=independent_loss(dataset) if binary else math.inf,
        measure=lambda state: held_out.measure(state.used),
        pictures=lambda state: _pictures(state, dataset.image_shape),
    )


def _dense(keys: Any, chosen: Any, shape: Shape) -> tuple[Perceptron, Perceptron]:
    sizes, latent = (shape.visible, *chosen.layers), chosen.latent
    return (
        fresh_perceptron(keys[0], (*sizes, 2 * latent)),
        fresh_perceptron(keys[1], (latent, *sizes[::-1])),
    )


def _filtered(keys: Any, chosen: Any, shape: Shape) -> tuple[Convolutional, Transposed]:
    image, width = shape.image_shape or (1, shape.visible), chosen.filter_width or _WIDTH
    inner, latent = chosen.layers, chosen.latent
    up = fresh_convolutional(keys[0], (1, *image), chosen.filters, (*inner, 2 * latent), width=width)
    return up, fresh_transposed(keys[1], (latent, *inner[::-1]), chosen.filters, image, width=width)


def _gained(network: Any, gain: float) -> Any:
    """The weights of all hidden layers times a factor; those of the outputs stay."""
    if isinstance(network, Convolutional):
        return dataclasses.replace(network, layers=_gained(network.layers, gain))
    if isinstance(network, Transposed):
        return dataclasses.replace(network, layers=_gained((*network.layers, None), gain)[:-1])
    return (*(Layer(gain * layer.weight, layer.bias) for layer in network[:-1]), network[-1])


def _with_bias(network: Any, bias: Array) -> Any:
    """With these biases of the outputs."""
    if isinstance(network, Transposed):
        last, *rest = network.filters
        changed = dataclasses.replace(last, bias=bias.reshape(last.bias.shape))
        return dataclasses.replace(network, filters=(changed, *rest))
    return (*network[:-1], Layer(network[-1].weight, bias))


def _rows_first(size: int) -> Callable[..., Rows]:
    """Batches [row, visible]: binary values, or real ones."""
    drawn = batches.in_order(size)
    return lambda key, rows, order, position: drawn(key, rows, order, position).T


def _operations(settings: Any, arrays: Variational, samples: int) -> int:
    """About how many a step takes: a filter is used at every pixel of its images."""
    pixels = math.prod(arrays.image) if arrays.image else 1
    weights = sum(leaf.size * (pixels if leaf.ndim == 4 else 1) for leaf in jax.tree.leaves(arrays))
    return 6 * weights * settings.training.batch_size * samples


def _pictures(state: State, shape: tuple[int, int] | None) -> dict[str, Sheet]:
    """Means and samples of fantasies, always drawn with the same key: they show how one set takes form."""
    means, samples = _imagined(generator.key(0), state.used)
    return {"means": Sheet(np.asarray(means), shape), "samples": Sheet(np.asarray(samples), shape)}


@jax.jit
def _imagined(key: PRNGKeyArray, model: Variational) -> tuple[Array, Array]:
    samples, latent = fantasies(key, model, _PICTURES)
    return visible_means(model, latent), samples


def trained(settings: Any, shape: Shape, model: Variational, carry: dict[str, Any]) -> TrainedVariational:
    """The networks as their user sees them."""
    del settings, carry
    return TrainedVariational(model, shape.visible)


KIND = Kind(fresh, problem, trained, latent_panels)
