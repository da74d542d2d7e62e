"""The Fisher of a machine to look at, as in the first figure of the paper [nbm sec. 3].

Small machines: E[T], E[T T^T], the Fisher and its inverse, all exact. Others: the spectrum from samples,
whose number bounds its rank.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from natgrad.errors import InputError
from natgrad.evaluate.pictures import save_figure
from natgrad.layers import generator
from natgrad.models.rbm.covariance import joint_covariance
from natgrad.models.rbm.fisher import SampledFisher, raveled
from natgrad.models.rbm.limits import check_storable
from natgrad.models.rbm.machine import Boltzmann, Offsets, hidden_inputs
from natgrad.models.rbm.partition import exact_log_z
from natgrad.models.rbm.trained import TrainedBoltzmann

USUAL_DAMPING = 0.1  # at which a machine is looked at whose method has none


def drawn_fisher(
    place: Path, machine: TrainedBoltzmann, damping: float, *, number: int, seed: int
) -> dict[str, Any]:
    """Write the picture; return what the spectrum says."""
    if _is_storable(machine):
        mean, matrix = _moments(machine)
        values = np.linalg.eigvalsh(matrix)[::-1].clip(0)
        panels = {
            "E[T T']": matrix + np.outer(mean, mean),
            "Fisher": matrix,
            "inverse of damping + Fisher": np.linalg.inv(matrix + damping * np.eye(len(matrix))),
        }
        _picture(place, mean, panels, values)
        return {"fisher": "exact"} | _told(values, len(matrix), damping)
    values, parameters = _sampled(machine, number, seed)
    _picture(place, None, {}, values)
    return {"fisher": "from samples", "samples": number} | _told(values, parameters, damping)


def _is_storable(machine: TrainedBoltzmann) -> bool:
    visible, hidden = machine.parameters.sizes
    try:
        check_storable(visible, hidden, gaussian=not machine.parameters.visible_units.finite, marginal=False)
    except InputError:
        return False
    return True


def _moments(machine: TrainedBoltzmann) -> tuple[np.ndarray, np.ndarray]:
    mean, matrix = _exact_moments(machine.parameters)
    return np.asarray(mean, np.float64), np.asarray(matrix, np.float64)


@jax.jit
def _exact_moments(model: Boltzmann) -> tuple[Array, Array]:
    return raveled(jax.grad(exact_log_z)(model)), joint_covariance(model)


def _sampled(machine: TrainedBoltzmann, number: int, seed: int) -> tuple[np.ndarray, int]:
    """The eigenvalues from so many samples that are not zero, largest first."""
    model = machine.parameters
    visible = machine.coded(machine.sample(number, seed=seed))
    hidden = model.hidden_units.drawn(generator.key(seed), hidden_inputs(model, visible))
    offsets = Offsets(jnp.zeros_like(model.visible_bias), jnp.zeros_like(model.hidden_bias))
    operator = SampledFisher(visible, hidden, offsets, model.visible_units, model.hidden_units)
    values = np.linalg.eigvalsh(np.asarray(operator.gram(), np.float64))[::-1]
    return values[:-1].clip(0), model.weight.size + sum(model.sizes)


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


def _picture(place: Path, mean: np.ndarray | None, panels: dict[str, np.ndarray], values: np.ndarray) -> None:
    from matplotlib.figure import Figure

    columns = 2 if panels else 1
    figure = Figure(
        figsize=(5.5 * columns, 4.5 * (1 + 2 * bool(panels)) / 1.2), dpi=120, layout="constrained"
    )
    axes = np.atleast_1d(figure.subplots(3 if panels else 1, columns)).ravel()
    for place_of, (title, matrix) in zip(axes, panels.items(), strict=False):
        top = float(np.quantile(np.abs(matrix), 0.995)) or 1.0
        place_of.imshow(matrix, cmap="RdBu_r", vmin=-top, vmax=top, interpolation="nearest")
        place_of.set_title(title, fontsize=9)
    if mean is not None:
        axes[3].plot(mean, lw=0.7)
        axes[3].set_title("E[T], T = (h v', h, v)", fontsize=9)
        axes[5].set_axis_off()
    spectrum = axes[4] if panels else axes[0]
    spectrum.semilogy(np.arange(1, len(values) + 1), np.maximum(values, 1e-12), marker=".", ms=3, lw=1)
    spectrum.set_title("eigenvalues of the Fisher", fontsize=9)
    save_figure(place, figure)
