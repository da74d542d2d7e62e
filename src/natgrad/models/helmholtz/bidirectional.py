"""Bidirectional Helmholtz machines (Bornschein, Shabanian, Fischer and Bengio 2016) [bihm]; [nrws sec. 7].

The model is p*(x) proportional to (sum_h sqrt(p(x, h) q(h | x)))^2. Its gradient in both networks
is that of wake samples weighted by the square roots of the importance weights; there is no sleep.
"""

import jax

from natgrad.core import Objective
from natgrad.models.helmholtz.phases import Shares, Weights, two_phases


def bidirectional(samples: int = 10, *, baseline: bool = True) -> Objective:
    """Both networks learn from wake samples with half-exponent weights."""
    return two_phases(samples, half_exponent, Shares(wake=1.0, sleep=0.0, baseline=float(baseline)))


def half_exponent(log_weights: Weights) -> Weights:
    """Weights proportional to sqrt(p(x, h) / q(h | x)), summing to one over the samples of each row."""
    return jax.nn.softmax(log_weights / 2, axis=0)
