"""Wake-sleep (Hinton, Dayan, Frey and Neal 1995), with any number of samples, averaged [wakesleep]."""

import jax.numpy as jnp

from natgrad.core import Objective
from natgrad.models.helmholtz.phases import Shares, Weights, two_phases


def wake_sleep(samples: int = 10, *, sleep_share: float = 1.0) -> Objective:
    """Generation learns from recognition's samples, recognition from dreams."""
    return two_phases(samples, uniform, Shares(wake=0.0, sleep=sleep_share))


def uniform(log_weights: Weights) -> Weights:
    """The same weight for every sample of a row."""
    return jnp.full_like(log_weights, 1 / log_weights.shape[0])
