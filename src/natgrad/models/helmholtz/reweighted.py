"""Reweighted wake-sleep (Bornschein and Bengio 2015) [rws]; [nrws sec. 3]."""

import jax

from natgrad.core import Objective
from natgrad.models.helmholtz.phases import Shares, Weights, two_phases


def reweighted(
    samples: int = 10, *, wake_share: float = 0.5, sleep_share: float = 0.5, baseline: bool = True
) -> Objective:
    """Wake samples weighted by importance; recognition learns half from them, half from dreams [nrws eq. 33].

    The baseline takes 1/S from each q-wake weight. The score's mean is zero, so this changes no
    expectation; it lowers the variance, and with one sample it makes q-wake vanish.
    """
    return two_phases(samples, normalised, Shares(wake_share, sleep_share, float(baseline)))


def normalised(log_weights: Weights) -> Weights:
    """Importance weights that sum to one over the samples of each row [nrws eq. 9]."""
    return jax.nn.softmax(log_weights, axis=0)
