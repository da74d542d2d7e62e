"""What the Fisher of a machine is made of, to look at: the four pictures of the paper's first figure.

    E[T],   E[T T^T],   F = E[T T^T] - E[T] E[T]^T,   (damping I + F)^{-1}            [nbm sec. 3, fig. 1]

Of a small machine all statistics T = (h v^T, h, v), exactly. Of others those of one hidden unit, h_j (v, 1),
from samples: the unit with the longest weights.
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from natgrad.errors import InputError
from natgrad.models.rbm.covariance import joint_covariance
from natgrad.models.rbm.fisher import raveled
from natgrad.models.rbm.limits import check_storable
from natgrad.models.rbm.machine import Boltzmann
from natgrad.models.rbm.partition import exact_log_z
from natgrad.models.rbm.units import UnitRows


class FisherMoments(NamedTuple):
    """The four; `parts` says how many statistics of which kind there are, in their order."""

    mean: Float[np.ndarray, " statistic"]
    second: Float[np.ndarray, "statistic statistic"]
    fisher: Float[np.ndarray, "statistic statistic"]
    inverse: Float[np.ndarray, "statistic statistic"]
    parts: dict[str, int]

    @property
    def matrices(self) -> dict[str, Float[np.ndarray, "statistic statistic"]]:
        """Those that are matrices, by their captions."""
        return {"E[T T']": self.second, "Fisher": self.fisher, "inverse of damping + Fisher": self.inverse}


def exact_moments(model: Boltzmann, damping: float) -> FisherMoments:
    """Of all statistics, by enumeration."""
    mean, fisher = (np.asarray(found, np.float64) for found in _mean_and_covariance(model))
    visible, hidden = model.sizes
    parts = {"h v'": hidden * visible, "h": hidden, "v": visible}
    return _completed(mean, fisher, damping, parts)


def unit_moments(model: Boltzmann, visible: UnitRows, hidden: UnitRows, damping: float) -> FisherMoments:
    """Of the weights and the bias of the hidden unit with the longest weights, from samples."""
    unit = int(np.argmax((np.asarray(model.weight) ** 2).sum(axis=1)))
    below, above = np.asarray(visible, np.float64), np.asarray(hidden[unit], np.float64)
    statistics = np.concatenate([above * below, above[None]])
    mean = statistics.mean(axis=1)
    apart = statistics - mean[:, None]
    parts = {f"h v' of hidden unit {unit + 1}": len(below), "its h": 1}
    return _completed(mean, apart @ apart.T / statistics.shape[1], damping, parts)


def is_storable(model: Boltzmann) -> bool:
    """Whether the exact Fisher of a machine can be had."""
    visible, hidden = model.sizes
    try:
        check_storable(visible, hidden, gaussian=not model.visible_units.finite, marginal=False)
    except InputError:
        return False
    return True


def _completed(mean: np.ndarray, fisher: np.ndarray, damping: float, parts: dict[str, int]) -> FisherMoments:
    inverse = np.linalg.inv(fisher + damping * np.eye(len(fisher)))
    return FisherMoments(mean, fisher + np.outer(mean, mean), fisher, inverse, parts)


@jax.jit
def _mean_and_covariance(model: Boltzmann) -> tuple[Array, Array]:
    return raveled(jax.grad(exact_log_z)(model)), joint_covariance(model)
