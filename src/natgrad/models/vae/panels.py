"""What a report shows of a variational autoencoder: reconstructions, traversals, the map of test rows."""

from statistics import NormalDist
from typing import Any

import numpy as np

from natgrad.core import Panel, Sheet
from natgrad.data import Dataset
from natgrad.evaluate.panels import in_unit_range, map_rows, planar_map, reconstructions

_GRID = 12  # vectors along each side of the plane of two latent units
_UNITS, _STEPS, _REACH = 10, 11, 3.0  # units that are traversed, in how many steps, how far to both sides


def latent_panels(run: Any, dataset: Dataset) -> dict[str, Panel]:
    """Reconstructions, traversals of latent units, and where test rows are among latent vectors."""
    again = "Test rows, and below or beside them the means of q(z | x) sent back through generation."
    seed = run.config.data.split_seed
    rows = map_rows(dataset, seed=seed)
    means, deviations = run.model.encode(rows)
    plane = "the directions in which they vary most" if means.shape[1] > 2 else "latent vectors as they are"
    where = (
        f"The means of q(z | x) of {len(rows)} test rows: {plane}. Circles have the radii one, two and "
        "three, in deviations of the prior."
    )
    return {
        "Reconstructions": reconstructions(run, dataset, again),
        "Latent traversals": _traversals(run, dataset, means, deviations),
        "Latent map": Panel(where, {"means of q": planar_map(means, dataset, seed=seed)}),
    }


def _traversals(run: Any, dataset: Dataset, means: np.ndarray, deviations: np.ndarray) -> Panel:
    """All of two latent units as a plane; of more, those that say most, one after the other."""
    shown = lambda latent: in_unit_range(dataset, run.model.decode(latent))  # noqa: E731
    if means.shape[1] == 2:
        text = "The mean of the data for each latent vector of a grid of equal probability under the prior."
        return Panel(text, {"the plane of z": Sheet(shown(prior_grid(_GRID)), dataset.image_shape, _GRID)})
    divergence = (0.5 * (means**2 + deviations**2 - 1) - np.log(deviations)).mean(axis=0)
    units = np.argsort(-divergence, kind="stable")[:_UNITS]
    text = (
        f"A test row's latent vector with one unit changed from {-_REACH:g} to {_REACH:g}, a line for each "
        "unit; those whose q is farthest from the prior come first."
    )
    most, least = divergence[units[0]], divergence[units[-1]]
    caption = f"units {', '.join(map(str, units))}; KL from {most:.2f} down to {least:.2f} nats"
    latent = traversed(means[0], units, np.linspace(-_REACH, _REACH, _STEPS))
    return Panel(text, {caption: Sheet(shown(latent), dataset.image_shape, _STEPS)})


def prior_grid(side: int) -> np.ndarray:
    """Pairs of quantiles of the standard normal distribution, from the upper left to the lower right."""
    values = np.array([NormalDist().inv_cdf((n + 0.5) / side) for n in range(side)])
    return np.stack(np.meshgrid(values, values[::-1]), axis=-1).reshape(-1, 2)


def traversed(start: np.ndarray, units: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A latent vector with one unit after the other at all values, [unit x value, latent]."""
    found = np.tile(start, (len(units), len(values), 1))
    for line, unit in enumerate(units):
        found[line, :, unit] = values
    return found.reshape(-1, len(start))
