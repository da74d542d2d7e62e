"""Tiny machines that can be enumerated."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np

from natgrad.layers.bernoulli import BINARY, SIGNED, Layer
from natgrad.models.helmholtz.machine import Helmholtz

CODINGS = {"signed": SIGNED, "binary": BINARY}
SIZES = {"one": (3, 2), "two": (4, 3, 2), "three": (3, 2, 2, 1)}


def machine(sizes=(4, 3, 2), coding=SIGNED, seed=0, spread=0.7):
    """A machine with random weights and biases, so that nothing is special."""
    rng = np.random.default_rng(seed)

    def layer(units, inputs):
        weight = rng.normal(scale=np.hypot(np.sqrt(2 / (units + inputs)), spread), size=(units, inputs))
        return Layer(jnp.asarray(weight), jnp.asarray(rng.normal(-1, spread, units)))

    pairs = list(pairwise(sizes))
    return Helmholtz(
        jnp.asarray(rng.normal(-1, spread, sizes[-1])),
        tuple(layer(low, up) for low, up in pairs),
        tuple(layer(up, low) for low, up in pairs),
        coding,
    )


def apart(logit, visible=6, units=30):
    """Hidden units on with probability sigmoid(logit) by the prior, and off with it by recognition.

    The visible units are fair coins whatever the hidden ones are.
    """
    down = Layer(jnp.zeros((visible, units)), jnp.zeros(visible))
    up = Layer(jnp.zeros((units, visible)), jnp.full(units, -logit))
    return Helmholtz(jnp.full(units, logit), (down,), (up,))
