"""The objectives of Helmholtz machines: what weights the wake samples have, and what recognition learns from.

wake_sleep      Hinton, Dayan, Frey and Neal 1995, with any number of samples, averaged [wakesleep]
reweighted      Bornschein and Bengio 2015 [rws]; [nrws sec. 3]
bidirectional   Bornschein, Shabanian, Fischer and Bengio 2016 [bihm]; [nrws sec. 7]: the model is
                p*(x) proportional to (sum_h sqrt(p(x, h) q(h | x)))^2, and there is no sleep
"""

import jax
import jax.numpy as jnp

from natgrad.core import Objective
from natgrad.models.helmholtz.phases import Shares, Weights, two_phases


def wake_sleep(samples: int = 10, *, sleep_share: float = 1.0) -> Objective:
    """Generation learns from recognition's samples, recognition from dreams."""
    return two_phases(samples, uniform, Shares(wake=0.0, sleep=sleep_share))


def reweighted(
    samples: int = 10, *, wake_share: float = 0.5, sleep_share: float = 0.5, baseline: bool = True
) -> Objective:
    """Wake samples weighted by importance; recognition learns half from them, half from dreams [nrws eq. 33].

    The baseline takes 1/S from each q-wake weight. The score's mean is zero, so this changes no
    expectation; it lowers the variance, and with one sample it makes q-wake vanish.
    """
    return two_phases(samples, normalized, Shares(wake_share, sleep_share, float(baseline)))


def bidirectional(samples: int = 10, *, baseline: bool = True) -> Objective:
    """Both networks learn from wake samples weighted by the square roots of the importance weights."""
    return two_phases(samples, half_exponent, Shares(wake=1.0, sleep=0.0, baseline=float(baseline)))


def uniform(log_weights: Weights) -> Weights:
    """The same weight for every sample of a row."""
    return jnp.full_like(log_weights, 1 / log_weights.shape[1])


def normalized(log_weights: Weights) -> Weights:
    """Importance weights that sum to one over the samples of each row [nrws eq. 9]."""
    return jax.nn.softmax(log_weights, axis=1)


def half_exponent(log_weights: Weights) -> Weights:
    """Weights proportional to sqrt(p(x, h) / q(h | x)), summing to one over the samples of each row."""
    return jax.nn.softmax(log_weights / 2, axis=1)
