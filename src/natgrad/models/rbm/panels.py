"""What a report shows of a machine: samples from chains, filters, the Fisher, reconstructions."""

from typing import Any

import numpy as np

from natgrad.core import Panel, Sheet
from natgrad.data import Dataset
from natgrad.evaluate.panels import reconstructions
from natgrad.models.rbm.fisher_moments import FisherMoments, exact_moments, is_storable, unit_moments
from natgrad.models.rbm.machine import Boltzmann
from natgrad.models.rbm.spectrum import damping_of, joint_samples
from natgrad.models.rbm.trained import TrainedBoltzmann
from natgrad.models.rbm.units import BernoulliUnits

PICTURES = 25
_FILTERS = 100
_SIDE = 1024  # of a matrix that is drawn whole
_SAMPLES, _TURNS = 200, 100  # of chains, for the Fisher of a large machine


def machine_panels(run: Any, dataset: Dataset) -> dict[str, Panel]:
    """Samples from chains, filters, the Fisher and reconstructions."""
    machine, shape = run.model, dataset.image_shape
    found = {"filters, longest first": Sheet(filters(machine.parameters), shape)}
    fisher = fisher_panel(machine, damping_of(run.config))
    if not isinstance(machine.parameters.visible_units, BernoulliUnits):
        text = "Weights of hidden units; middle gray is zero."
        return {"Filters": Panel(text, found), "Fisher": fisher}
    ends = "Means of the visible units at the end of chains of a thousand turns, and weights of hidden units."
    again = (
        "Test rows, and below or beside them the means of the visible units given those of the hidden ones."
    )
    return {
        "Chains and filters": Panel(ends, {"chains": Sheet(machine.means(PICTURES), shape)} | found),
        "Fisher": fisher,
        "Reconstructions": reconstructions(run, dataset, again),
    }


def filters(model: Boltzmann) -> np.ndarray:
    """The weights of hidden units as gray values: those of the longest first, middle gray is zero."""
    weight = np.asarray(model.weight)
    order = np.argsort(-(weight**2).sum(axis=1), kind="stable")[:_FILTERS]
    largest = np.abs(weight[order]).max(axis=1, keepdims=True)
    return 0.5 + 0.5 * weight[order] / np.maximum(largest, 1e-30)


def fisher_panel(machine: TrainedBoltzmann, damping: float) -> Panel:
    """The four pictures of the paper's first figure; middle gray is zero."""
    model = machine.parameters
    if is_storable(model) and model.weight.size + sum(model.sizes) <= _SIDE:
        found, source = exact_moments(model, damping), "exact"
    else:
        visible, hidden = joint_samples(machine, _SAMPLES, seed=0, turns=_TURNS)
        found, source = unit_moments(model, visible, hidden, damping), f"from {_SAMPLES} samples"
    text = (
        f"T = ({', '.join(found.parts)}), {source}; damping {damping:g}. Middle gray is zero, and the "
        "largest half percent of the entries is black or white."
    )
    sheets = {caption: Sheet(_gray(matrix)) for caption, matrix in found.matrices.items()}
    return Panel(text, {"E[T], as a table": Sheet(_gray(_table(model, found)))} | sheets)


def _table(model: Boltzmann, found: FisherMoments) -> np.ndarray:
    """E[T] as the means of the products of (h, 1) with (v, 1), or of one h with (v, 1)."""
    visible, hidden = model.sizes
    if len(found.parts) == 2:
        return found.mean[None]
    weight, above, below = np.split(found.mean, (visible * hidden, visible * hidden + hidden))
    upper = np.column_stack([weight.reshape(hidden, visible), above])
    return np.vstack([upper, np.append(below, 1.0)])


def _gray(matrix: np.ndarray) -> np.ndarray:
    top = float(np.quantile(np.abs(matrix), 0.995)) or 1.0
    return (0.5 + 0.5 * matrix / top).clip(0, 1)
