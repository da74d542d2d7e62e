"""Forward and reverse annealing put together: the acceptance ratio of [bennett1976].

The chances of a path from the base to the machine, and of the same path the other way, have the ratio
Z / exp(w), with the path's log-weight w. Of all estimates of log Z from the weights of n forward chains and
those of m reverse ones, w', that one has the least variance which solves

    sum_i f(w_i - c) = sum_j f(c - w'_j),     c = log Z + log(n / m),     f(x) = 1 / (1 + exp(-x))

It leans on the paths that both directions take, not on the few chains of largest weight.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from natgrad.models.rbm.annealed import Annealed

_HALVINGS = 100
_BEYOND = 50.0  # nats that the solution may lie beyond all weights


class Bridged(NamedTuple):
    """An estimate of log Z and its standard error."""

    log_z: float
    se: float


def bridged(forward: Annealed, reverse: Annealed) -> Bridged:
    """The estimate from chains of both directions along the same path."""
    up, down = forward.logs, reverse.logs
    shift = math.log(len(up) / len(down))
    low = min(up.min(), down.min()) - _BEYOND
    high = max(up.max(), down.max()) + _BEYOND
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if expit(up - shift - middle).sum() > expit(shift + middle - down).sum():
            low = middle
        else:
            high = middle
    log_z = 0.5 * (low + high)
    parts = expit(up - shift - log_z), expit(shift + log_z - down)
    return Bridged(log_z, math.sqrt(sum(_relative_variance(part) for part in parts)))


def _relative_variance(values: np.ndarray) -> float:
    """The squared relative error of a mean [bennett1976]."""
    return float(values.var(ddof=1) / len(values) / values.mean() ** 2)
