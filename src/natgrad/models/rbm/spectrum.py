"""The Fisher of a machine as a picture: what it is made of (`fisher_moments`), and its spectrum.

The spectrum of a small machine is exact. Of others it is from samples, whose number bounds its rank.
"""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from natgrad.evaluate.pictures import save_figure
from natgrad.layers import generator
from natgrad.models.rbm.fisher import SampledFisher
from natgrad.models.rbm.fisher_moments import FisherMoments, exact_moments, is_storable, unit_moments
from natgrad.models.rbm.machine import Offsets, hidden_inputs
from natgrad.models.rbm.trained import TURNS, TrainedBoltzmann
from natgrad.models.rbm.units import UnitRows

USUAL_DAMPING = 0.1  # at which a machine is looked at whose method has none
_PIXELS = 0.995  # the share of entries within the range of colors


def damping_of(config: Any) -> float:
    """The damping of a config, or the usual one."""
    return config.metric.damping if hasattr(config, "metric") else USUAL_DAMPING


def drawn_fisher(
    place: Path, machine: TrainedBoltzmann, damping: float, *, number: int, seed: int
) -> dict[str, Any]:
    """Write the picture; return what the spectrum says."""
    model = machine.parameters
    if is_storable(model):
        found = exact_moments(model, damping)
        values = np.linalg.eigvalsh(found.fisher)[::-1].clip(0)
        _picture(place, found, values)
        return {"fisher": "exact"} | _told(values, len(found.mean), damping)
    visible, hidden = joint_samples(machine, number, seed=seed)
    values, parameters = _sampled(machine, visible, hidden), model.weight.size + sum(model.sizes)
    _picture(place, unit_moments(model, visible, hidden, damping), values)
    return {"fisher": "from samples", "samples": number} | _told(values, parameters, damping)


def joint_samples(
    machine: TrainedBoltzmann, number: int, *, seed: int, turns: int = TURNS
) -> tuple[UnitRows, UnitRows]:
    """Visible and hidden states of so many chains."""
    model = machine.parameters
    visible = machine.coded(machine.sample(number, turns=turns, seed=seed))
    return visible, model.hidden_units.drawn(generator.key(seed), hidden_inputs(model, visible))


def _sampled(machine: TrainedBoltzmann, visible: UnitRows, hidden: UnitRows) -> np.ndarray:
    """The eigenvalues from samples that are not zero, largest first."""
    model = machine.parameters
    offsets = Offsets(jnp.zeros_like(model.visible_bias), jnp.zeros_like(model.hidden_bias))
    operator = SampledFisher(visible, hidden, offsets, model.visible_units, model.hidden_units)
    values = np.linalg.eigvalsh(np.asarray(operator.gram(), np.float64))[::-1]
    return values[:-1].clip(0)


def _told(values: np.ndarray, parameters: int, damping: float) -> dict[str, Any]:
    half = int(np.searchsorted(np.cumsum(values), 0.5 * values.sum())) + 1
    return {
        "parameters": parameters,
        "largest": float(values[0]),
        "median": float(np.median(values)),
        "trace": float(values.sum()),
        "directions_of_half": half,
        "condition": float((values[0] + damping) / (values[-1] + damping)),
    }


def _picture(place: Path, found: FisherMoments, values: np.ndarray) -> None:
    """E[T] and E[T T'], below them the Fisher and its inverse, below all the spectrum."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 14.5), dpi=120, layout="constrained")
    axes = figure.subplot_mosaic([[0, 1], [2, 3], [4, 4]], height_ratios=[1, 1, 0.45])
    axes[0].plot(found.mean, lw=0.7)
    axes[0].set_title(f"E[T], T = ({', '.join(found.parts)})")
    axes[0].margins(x=0)
    for number, (title, matrix) in enumerate(found.matrices.items(), 1):
        top = float(np.quantile(np.abs(matrix), _PIXELS)) or 1.0
        drawn = axes[number].imshow(matrix, cmap="RdBu_r", vmin=-top, vmax=top)
        axes[number].set_title(title)
        figure.colorbar(drawn, ax=axes[number], shrink=0.8, extend="both")
    for number in range(4):
        _between_parts(axes[number], found.parts, both=number > 0)
    axes[4].semilogy(np.arange(1, len(values) + 1), np.maximum(values, 1e-12), marker=".", ms=3, lw=1)
    axes[4].set_title("eigenvalues of the Fisher")
    save_figure(place, figure)


def _between_parts(axes: Any, parts: dict[str, int], *, both: bool) -> None:
    """Lines where one kind of statistics ends and the next begins."""
    for end in np.cumsum(list(parts.values()))[:-1]:
        axes.axvline(end - 0.5, color="gray", lw=0.6)
        if both:
            axes.axhline(end - 0.5, color="gray", lw=0.6)
