"""Restricted Boltzmann machines as a kind of model: from a config and its data to what a session trains."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from natgrad.core import Kind, Problem, Sheet, State
from natgrad.data import Dataset, batches
from natgrad.layers.bernoulli import CODINGS
from natgrad.models.rbm import methods
from natgrad.models.rbm.distance import distances
from natgrad.models.rbm.machine import Boltzmann, bias_of, boltzmann, visible_inputs
from natgrad.models.rbm.monitor import HeldOut
from natgrad.models.rbm.panels import PICTURES, filters, machine_panels
from natgrad.models.rbm.spec import Shape
from natgrad.models.rbm.trained import TrainedBoltzmann
from natgrad.models.rbm.units import BernoulliUnits, GaussianUnits, UnitRows
from natgrad.training.checks import independent_loss
from natgrad.updates.first_order import rate_schedule


def fresh(key: PRNGKeyArray, settings: Any, shape: Shape) -> Boltzmann:
    """A new machine of a config; by default its independent units have the data's means."""
    chosen = settings.model
    return boltzmann(
        key,
        (shape.visible, chosen.hidden),
        coding=CODINGS[chosen.coding],
        gaussian=chosen.visible == "gaussian",
        deviation=chosen.deviation,
        visible_bias=data_bias(settings, shape) if chosen.bias == "data" else None,
    )


def problem(key: PRNGKeyArray, settings: Any, dataset: Dataset) -> Problem:
    """What a session trains for a config; the key is that of evaluations."""
    held_out = HeldOut(key, settings, dataset, data_bias(settings, Shape.of(settings, dataset)))
    return Problem(
        rows=batches.rows_of(dataset),
        number=len(dataset.train),
        draw=coded_batches(settings),
        algorithm=partial(methods.algorithm, settings),
        rate=partial(rate_schedule, settings.optimizer),
        paced=True,
        operations=lambda stage: _operations(settings, dataset.visible),
        ignorance=dataset.visible * (math.log(2) if settings.model.visible == "bernoulli" else 1.5),
        independent=_independent(settings, dataset),
        measure=lambda state: held_out.measure(state.used) | _from_identity(settings, state),
        pictures=lambda state: _pictures(settings, state, dataset.image_shape),
    )


def _independent(settings: Any, dataset: Dataset) -> float:
    """The loss of independent units, and also their pseudo-likelihood; a penalty has another unit."""
    judged = settings.model.visible == "bernoulli" and settings.method != "penalty"
    return independent_loss(dataset) if judged else math.inf


def data_bias(settings: Any, shape: Shape) -> np.ndarray:
    """The visible biases of independent units with the means of the training rows."""
    return bias_of(units_of(settings), np.asarray(shape.means), shape.rows)


def units_of(settings: Any) -> BernoulliUnits | GaussianUnits:
    """The visible units of a config."""
    if settings.model.visible == "gaussian":
        return GaussianUnits()
    return BernoulliUnits(CODINGS[settings.model.coding])


def coded_batches(settings: Any) -> Callable[..., Array]:
    """Batches [visible, row]: binary values in the machine's coding, or real ones."""
    drawn, units = batches.in_order(settings.training.batch_size), units_of(settings)

    def draw(key: PRNGKeyArray, rows: batches.StoredRows, order: Array, position: Array) -> UnitRows:
        found = drawn(key, rows, order, position)
        return units.coding.value(found, found.dtype) if isinstance(units, BernoulliUnits) else found

    return draw


def _operations(settings: Any, visible: int) -> int:
    chosen, hidden = settings.objective, settings.model.hidden
    if chosen.negative == "exact":
        return 20 * 2 ** min(visible, hidden, 22) * max(visible, hidden)
    chains = settings.training.batch_size if chosen.negative == "cd" else chosen.chains or methods.CHAINS
    levels = (chosen.temperatures or methods.TEMPERATURES) if chosen.negative == "tempering" else 1
    turned = 2 * chains * levels * (chosen.gibbs or methods.TURNS)
    return 2 * visible * hidden * (2 * settings.training.batch_size + turned + 5 * chains)


def _pictures(settings: Any, state: State, shape: tuple[int, int] | None) -> dict[str, Sheet]:
    """The means of visible units given the chains that are carried, and the weights of hidden units."""
    model = state.used
    found = {"filters": Sheet(filters(model), shape)}
    if settings.objective.negative not in ("pcd", "tempering") or settings.model.visible == "gaussian":
        return found
    return {"chains": Sheet(np.asarray(_means_of(model, state.objective.chains)).T, shape)} | found


@jax.jit
def _means_of(model: Any, chains: Array) -> UnitRows:
    """The means in [0, 1] of visible units given some chains."""
    means = model.visible_units.mean(visible_inputs(model, top_chains(chains)[:, :PICTURES]))
    return model.visible_units.coding.on(means)


def _from_identity(settings: Any, state: State) -> dict[str, float]:
    """How far a method that is to make the Fisher the identity is from that."""
    if settings.method in ("natural", "plain"):
        return {}
    carried = settings.objective.negative in ("pcd", "tempering")
    chains = top_chains(state.objective.chains) if carried else None
    biases = hasattr(settings, "whitening") and settings.whitening.biases
    return distances(state, biases=biases, chains=chains)


def top_chains(chains: Any) -> Any:
    """The hidden states [hidden, chain] of the machine itself, of chains or of tempered ones."""
    return chains[:, -1] if chains.ndim == 3 else chains


def trained(settings: Any, shape: Shape, model: Boltzmann, carry: dict[str, Any]) -> TrainedBoltzmann:
    """The machine as its user sees it."""
    del settings, shape
    return TrainedBoltzmann(model, top_chains(carry["chains"]) if "chains" in carry else None)


KIND = Kind(fresh, problem, trained, machine_panels)
