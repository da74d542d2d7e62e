"""Helmholtz machines as a kind of model: from a config and its data to what a session trains."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from natgrad.core import Info, Kind, Panel, Problem, Sheet, State
from natgrad.data import Dataset, batches
from natgrad.evaluate.panels import reconstructions
from natgrad.layers import generator
from natgrad.layers.bernoulli import CODINGS, Coding
from natgrad.models.helmholtz import methods
from natgrad.models.helmholtz.likelihood import Monitor
from natgrad.models.helmholtz.machine import Helmholtz, dream, helmholtz
from natgrad.models.helmholtz.trained import Trained
from natgrad.models.registry import Shape
from natgrad.training.checks import independent_loss

WEIGHTS = {
    "glorot-normal": jax.nn.initializers.glorot_normal,
    "glorot-uniform": jax.nn.initializers.glorot_uniform,
    "lecun-normal": jax.nn.initializers.lecun_normal,
}
_PICTURES = 25


def fresh(key: PRNGKeyArray, settings: Any, shape: Shape) -> Helmholtz:
    """A new machine of a config for data of that width."""
    chosen = settings.model
    return helmholtz(
        key,
        (shape.visible, *chosen.layers),
        coding=CODINGS[chosen.coding],
        weights=WEIGHTS[chosen.weights](in_axis=1, out_axis=0),
        bias=chosen.bias,
        prior_bias=chosen.prior_bias,
    )


def problem(key: PRNGKeyArray, settings: Any, dataset: Dataset) -> Problem:
    """What a session trains for a config; the key is that of evaluations."""
    monitor = Monitor(key, settings, dataset)
    return Problem(
        rows=batches.rows_of(dataset),
        number=len(dataset.train),
        draw=_coded(settings.training.batch_size, CODINGS[settings.model.coding]),
        stages=settings.objective.stages,
        algorithm=partial(methods.algorithm, settings),
        rate=lambda pace: methods.rate_of(settings, pace),
        paced=True,
        operations=partial(_operations, settings, dataset.visible),
        ignorance=dataset.visible * math.log(2),
        independent=independent_loss(dataset),
        measure=lambda state: monitor.measure(state.used),
        pictures=lambda state: _pictures(state, dataset.image_shape),
        replaceable=methods.sources_of(settings),
        facts=partial(_facts, settings),
    )


def weights_of(settings: Any, visible: int) -> int:
    """Weights and biases of both networks."""
    sizes = (visible, *settings.model.layers)
    return sum((low + 1) * up + (up + 1) * low for low, up in pairwise(sizes))


def _operations(settings: Any, visible: int, samples: int) -> int:
    sleeps = getattr(settings.objective, "sleeps", 1)
    return 8 * weights_of(settings, visible) * settings.training.batch_size * samples * sleeps


def _coded(size: int, coding: Coding) -> Callable[..., Array]:
    """Batches: binary values in the machine's coding, units first."""
    drawn = batches.in_order(size)

    def draw(key: PRNGKeyArray, rows: batches.StoredRows, order: Array, position: Array) -> Array:
        on = drawn(key, rows, order, position)
        return coding.value(on, on.dtype)

    return draw


def _facts(settings: Any, info: Info) -> dict[str, Any]:
    return {"solvers": methods.solvers_of(settings, info) or None}


def _pictures(state: State, shape: tuple[int, int] | None) -> dict[str, Sheet]:
    """Means and samples of dreams, always drawn with the same key: they show how one set takes form."""
    means, samples = _dreamt(generator.key(0), state.used)
    return {"means": Sheet(np.asarray(means), shape), "samples": Sheet(np.asarray(samples), shape)}


@jax.jit
def _dreamt(key: PRNGKeyArray, model: Helmholtz) -> tuple[Array, Array]:
    dreams = dream(key, model, 1, _PICTURES)
    return jax.nn.sigmoid(dreams.generation[0][:, 0]).T, model.coding.on(dreams.values[0][:, 0]).T


def trained(settings: Any, shape: Shape, model: Helmholtz, carry: dict[str, Any]) -> Trained:
    """The machine as its user sees it."""
    del settings, shape, carry
    return Trained(model)


def panels(run: Any, dataset: Dataset) -> dict[str, Panel]:
    """Reconstructions of test rows."""
    text = "Test rows, and below or beside them the means of their posteriors sent back through generation."
    return {"Reconstructions": reconstructions(run, dataset, text)}


KIND = Kind(fresh, problem, trained, panels)
