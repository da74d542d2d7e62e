"""Measure and show a finished run, or a machine in a file: likelihood, samples, Fisher."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from natgrad.data import Dataset, load, load_settings
from natgrad.data.batches import binary_rows
from natgrad.errors import InputError
from natgrad.evaluate.pictures import save_samples
from natgrad.models.rbm import spectrum
from natgrad.models.rbm.likelihood import log_likelihoods, with_error
from natgrad.models.rbm.monitor import coded_rows
from natgrad.models.rbm.trained import TrainedBoltzmann, at_least_one
from natgrad.models.rbm.units import BernoulliUnits
from natgrad.training.run import load as load_run

_STARTS = 10_000  # training rows that say where annealing begins


def evaluate_machine(
    run: str | Path,
    data: str | None,
    *,
    rows: int = 0,
    chains: int = 100,
    temperatures: int = 10_000,
    turns: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """The log-likelihood of validation and test rows, and how it was found."""
    if rows < 0:
        raise InputError(f"rows: expected at least 0, which means all, got {rows}")
    machine, dataset, split_seed = _machine_and_data(run, data)
    model = machine.parameters
    if dataset.visible != model.sizes[0]:
        raise InputError(
            f"the machine of {run} has {model.sizes[0]} visible units, the rows of {dataset.name} have "
            f"{dataset.visible} values; give other --data"
        )
    part = lambda name, limit: np.asarray(binary_rows(dataset, name, seed=split_seed, limit=limit))  # noqa: E731
    counts = {"chains": chains, "temperatures": temperatures, "turns": turns}
    found = machine.log_z(part("train", _STARTS).T, seed=seed, **counts)
    result: dict[str, Any] = {"run": str(run)}
    for name in ("valid", "test"):
        values = log_likelihoods(model, coded_rows(model, jnp.asarray(part(name, rows))), found.log_z)
        mean, error = with_error(values)
        result |= {f"{name}_ll": mean, f"{name}_ll_se": error, "rows": len(values)}
    return result | found.facts()


def sampled_machine(
    run: str | Path, *, number: int, turns: int, seed: int, out: str | Path | None
) -> dict[str, Any]:
    """Write a picture of the ends of chains."""
    found = load_run(run)
    picture = Path(out) if out is not None else found.folder / "drawn.png"
    counts = {"turns": turns, "seed": seed}
    means, rows = found.model.means(number, **counts), found.model.sample(number, **counts)
    if not isinstance(found.model.parameters.visible_units, BernoulliUnits):
        means, rows = (np.clip(values, 0, 1) for values in (means, rows))
    save_samples(picture, means, rows, found.image_shape)
    return {"run": str(found.folder), "picture": str(picture), "number": number, **counts}


def pictured_fisher(run: str | Path, *, number: int, seed: int, out: str | Path | None) -> dict[str, Any]:
    """Write a picture of the Fisher of a run's machine, exact or from samples; return its spectrum."""
    at_least_one("number", number)
    found = load_run(run)
    place = Path(out) if out is not None else found.folder / "fisher.png"
    damping = spectrum.damping_of(found.config)
    return {"run": str(found.folder), "picture": str(place), "damping": damping} | spectrum.drawn_fisher(
        place, found.model, damping, number=number, seed=seed
    )


def _machine_and_data(run: str | Path, data: str | None) -> tuple[TrainedBoltzmann, Dataset, int]:
    """A run's machine with its data, or a file's with those that are named."""
    if Path(run).is_dir():
        found = load_run(run)
        settings = found.config.data
        if data is None:
            return found.model, load_settings(settings), settings.split_seed
        return found.model, load(data, split_seed=settings.split_seed), settings.split_seed
    machine = TrainedBoltzmann.load(run)
    if data is None:
        raise InputError(f"{run} is a machine without data; say which rows to judge it by, with --data NAME")
    gaussian = not isinstance(machine.parameters.visible_units, BernoulliUnits)
    return machine, load(data, binarize="real" if gaussian else None), 0
