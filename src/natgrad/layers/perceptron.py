"""A perceptron as a plain pytree and a function.

Parameters are a tuple of layers, outputs a function of (parameters, inputs) with the rows first; the
output distribution is given apart (`layers.outputs`). Only the per-unit metric knows this network:
every other metric takes any pytree and any function.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from natgrad.errors import InputError
from natgrad.layers.bernoulli import Layer

Activation = Callable[[Array], Array]
Perceptron = tuple[Layer, ...]


def fresh_perceptron(key: PRNGKeyArray, sizes: Sequence[int]) -> Perceptron:
    """Layers of the given sizes, inputs first; weights of variance 1 / inputs, biases zero."""
    if len(sizes) < 2 or min(sizes) < 1:
        raise InputError(
            f"a perceptron needs at least two positive sizes (inputs, ..., outputs), got {tuple(sizes)}"
        )
    keys = jax.random.split(key, len(sizes) - 1)
    return tuple(
        Layer(scaled_normal(k, (units, inputs), inputs), jnp.zeros((units,)))
        for k, (inputs, units) in zip(keys, pairwise(sizes), strict=True)
    )


def perceptron(activation: Activation = jnp.tanh) -> Callable[[Perceptron, Array], Array]:
    """Outputs [row, out] of layers with one activation between them; inputs are flattened to [row, in]."""

    def network(layers: Perceptron, inputs: Array) -> Array:
        return forward_pass(layers, inputs, activation)[0]

    return network


def forward_pass(
    layers: Perceptron, inputs: Array, activation: Activation, shifts: Sequence[Array] | None = None
) -> tuple[Array, tuple[Array, ...]]:
    """The outputs and what entered every layer; `shifts` are added to the sums of every layer, [row, out].

    The derivative with respect to a shift is that with respect to a unit's sum, for every row.
    """
    values, entered = inputs.reshape(inputs.shape[0], -1), []
    for number, layer in enumerate(layers):
        entered.append(values)
        values = values @ layer.weight.T + layer.bias
        if shifts is not None:
            values = values + shifts[number]
        if number + 1 < len(layers):
            values = activation(values)
    return values, tuple(entered)


def scaled_normal(key: PRNGKeyArray, shape: tuple[int, ...], inputs: int) -> Array:
    """Normal numbers of variance 1 / inputs."""
    return jax.random.normal(key, shape) / jnp.sqrt(inputs)
