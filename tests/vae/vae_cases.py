"""Tiny autoencoders, and integrals over their latent vectors by Gauss-Hermite quadrature, in NumPy."""

import itertools
from itertools import pairwise

import jax.numpy as jnp
import numpy as np

from natgrad.layers.bernoulli import Layer
from natgrad.models.vae.machine import Variational

VISIBLE = 3


def made(
    *, latent=1, hidden=(4,), visible=VISIBLE, gaussian=False, deviation=None, seed=0, scale=1.0, wider=0.0
):
    """Dense networks with weights and biases that matter; log-variances of q are wider by a number."""
    rng = np.random.default_rng(seed)

    def layer(inputs, units, more=0.0):
        weight = scale * rng.normal(size=(units, inputs)) / np.sqrt(inputs)
        return Layer(jnp.asarray(weight), jnp.asarray(0.3 * rng.normal(size=units) + more))

    up, down = (visible, *hidden), (latent, *hidden[::-1], visible)
    log_variances = np.repeat([0.0, wider], latent)
    return Variational(
        recognition=(*itertools.starmap(layer, pairwise(up)), layer(up[-1], 2 * latent, log_variances)),
        generation=tuple(itertools.starmap(layer, pairwise(down))),
        noise=jnp.asarray(-0.4) if gaussian and deviation is None else (),
        deviation=deviation,
    )


def states(visible=VISIBLE):
    """Every binary row."""
    return jnp.asarray(list(itertools.product((0.0, 1.0), repeat=visible)))


def hermite(latent=1, nodes=60):
    """Nodes [node, latent] and weights of the standard normal distribution."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()
    grid = np.array(list(itertools.product(points, repeat=latent)))
    return grid, np.prod(list(itertools.product(weights, repeat=latent)), axis=1)


def activations(layers, inputs):
    """The outputs of a perceptron with tanh, layer by layer."""
    values = np.asarray(inputs)
    for number, layer in enumerate(layers):
        values = values @ np.asarray(layer.weight).T + np.asarray(layer.bias)
        values = np.tanh(values) if number + 1 < len(layers) else values
    return values


def log_conditional(model, rows, latent):
    """log p(x | z), [row, node]."""
    outputs, rows = activations(model.generation, latent), np.asarray(rows)
    if model.gaussian:
        s = 2 * np.log(model.deviation) if model.deviation else float(model.noise)
        squares = ((rows[:, None] - outputs[None]) ** 2).sum(axis=2)
        return -0.5 * squares * np.exp(-s) - 0.5 * rows.shape[1] * (s + np.log(2 * np.pi))
    return rows @ outputs.T - np.logaddexp(0, outputs).sum(axis=1)


def log_marginal(model, rows, nodes=60):
    """log p(x) of every row by quadrature over the prior."""
    grid, weights = hermite(model.latent, nodes)
    return np.log(np.exp(log_conditional(model, rows, grid)) @ weights)
