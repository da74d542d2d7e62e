"""The Helmholtz machine: a prior, generation layers downwards, recognition layers upwards.

    p(x, h) = p(h_L) prod_i p(h_i | h_{i+1})   [nrws eq. 15]
    q(h | x) = prod_i q(h_{i+1} | h_i)         [nrws eq. 22]

with h_0 = x. Layers are counted from the data upward: `generation[i]` maps layer i+1 to layer i,
`recognition[i]` maps layer i to layer i+1.
"""

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.devices import placed
from natgrad.layers import bernoulli
from natgrad.layers.bernoulli import SIGNED, Coding, Initializer, Layer, Values
from natgrad.tree import map_layers, pytree, static

GLOROT = jax.nn.initializers.glorot_normal(in_axis=1, out_axis=0)  # truncated, variance 2 / (in + out)


@pytree
class Helmholtz:
    """Two sigmoid belief networks over the same units."""

    prior: Float[Array, " top"]
    generation: tuple[Layer, ...]
    recognition: tuple[Layer, ...]
    coding: Coding = static(default=SIGNED)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units per layer, the visible one first."""
        return (*(layer.weight.shape[0] for layer in self.generation), self.prior.shape[0])


class Pass(NamedTuple):
    """One joint draw of all layers, and what both networks say of it.

    `values[i]` are layer i's; `generation[i]` the logits of layer i given layer i+1, the last one
    the prior's; `recognition[i]` the logits of layer i+1 given layer i.
    """

    values: tuple[Values, ...]
    generation: tuple[Values, ...]
    recognition: tuple[Values, ...]

    @property
    def samples(self) -> int:
        """Draws per row."""
        return self.values[-1].shape[2]


def biases(model: Helmholtz) -> tuple[Array, ...]:
    """The prior and all biases. A step that is not finite shows it there: its weights sum the same rows."""
    return (model.prior, *(layer.bias for layer in (*model.generation, *model.recognition)))


def helmholtz(
    key: PRNGKeyArray,
    sizes: Sequence[int],
    *,
    coding: Coding = SIGNED,
    weights: Initializer = GLOROT,
    bias: float = -1.0,
    prior_bias: float = -1.0,
) -> Helmholtz:
    """A fresh machine with Glorot weights; `sizes` from the visible layer upward."""
    lower, upper = sizes[:-1], sizes[1:]
    keys = jax.random.split(key, (2, len(upper)))

    def stack(keys: PRNGKeyArray, inputs: Sequence[int], units: Sequence[int]) -> tuple[Layer, ...]:
        return tuple(bernoulli.fresh(*args, weights, bias) for args in zip(keys, inputs, units, strict=True))

    return Helmholtz(
        prior=jnp.full((sizes[-1],), prior_bias, jnp.zeros(()).dtype),
        generation=stack(keys[0], upper, lower),
        recognition=stack(keys[1], lower, upper),
        coding=coding,
    )


def wake(
    key: PRNGKeyArray,
    model: Helmholtz,
    visible: Float[Array, "visible row"],
    samples: int,
    *,
    reuse: bool = False,
) -> Pass:
    """Draw hidden states for data, `samples` for each row, and let both networks evaluate them.

    The first layer's logits are computed once per row: its inputs are the same for all samples.
    With `reuse`, from the probabilities that gradients need, too.
    """
    rows = visible.shape[1]
    uniforms = _uniforms(key, model.sizes[1:], (rows, samples), visible.dtype)
    values, recognition = [visible[:, :, None]], []
    for layer, uniform in zip(model.recognition, uniforms, strict=True):
        logit = bernoulli.logits(layer, values[-1])
        values.append(bernoulli.draw(uniform, logit, model.coding, reuse=reuse))  # ~ q(h_{i+1} | h_i)
        recognition.append(logit)
    generation = map_layers(bernoulli.logits, model.generation, tuple(values[1:]))
    return Pass(tuple(values), (*generation, model.prior[:, None, None]), tuple(recognition))


def dream(key: PRNGKeyArray, model: Helmholtz, rows: int, samples: int) -> Pass:
    """Draw `rows` x `samples` fantasies from the generation network, and let both networks evaluate them."""
    logit = model.prior[:, None, None]
    uniforms = _uniforms(key, model.sizes, (rows, samples), logit.dtype)
    values = [bernoulli.draw(uniforms[-1], logit, model.coding)]  # ~ p(h_L)
    generation = [logit]
    for layer, uniform in zip(model.generation[::-1], uniforms[-2::-1], strict=True):
        logit = bernoulli.logits(layer, values[0])
        values.insert(0, bernoulli.draw(uniform, logit, model.coding))  # ~ p(h_i | h_{i+1})
        generation.insert(0, logit)
    recognition = map_layers(bernoulli.logits, model.recognition, tuple(values[:-1]))
    return Pass(tuple(values), tuple(generation), recognition)


def evaluated(model: Helmholtz, values: tuple[Values, ...]) -> Pass:
    """What both networks say of given values of all layers."""
    generation = map_layers(bernoulli.logits, model.generation, values[1:])
    recognition = map_layers(bernoulli.logits, model.recognition, values[:-1])
    return Pass(values, (*generation, model.prior[:, None, None]), recognition)


def log_joint(model: Helmholtz, drawn: Pass) -> Float[Array, "row sample"]:
    """log p(x, h) of every draw [nrws eq. 15]."""
    samples = drawn.samples
    on = [model.coding.on(bernoulli.repeated(value, samples)) for value in drawn.values]
    return sum(map_layers(bernoulli.log_prob, drawn.generation, tuple(on)), jnp.zeros(()))


def log_recognition(model: Helmholtz, drawn: Pass) -> Float[Array, "row sample"]:
    """log q(h | x) of every draw [nrws eq. 22]."""
    on = [model.coding.on(value) for value in drawn.values[1:]]
    return sum(map_layers(bernoulli.log_prob, drawn.recognition, tuple(on)), jnp.zeros(()))


def log_weights(model: Helmholtz, drawn: Pass, *, reuse: bool = False) -> Float[Array, "row sample"]:
    """log p(x, h) - log q(h | x), the unnormalized importance weights [nrws eq. 9], layer by layer.

    With `reuse`, from the probabilities that gradients need, too.
    """
    samples = drawn.samples
    visible, *hidden = [bernoulli.repeated(model.coding.on(value), samples) for value in drawn.values]
    ratio = partial(bernoulli.log_ratio, reuse=reuse)
    seen = bernoulli.log_prob(drawn.generation[0], visible, reuse=reuse)
    return seen + sum(map_layers(ratio, drawn.generation[1:], drawn.recognition, tuple(hidden)))


def _uniforms(
    key: PRNGKeyArray, sizes: Sequence[int], draws: tuple[int, int], dtype: jnp.dtype
) -> list[Array]:
    """Uniform numbers for several layers, from one call: many calls compile slowly."""
    numbers = jax.random.uniform(key, (sum(sizes), math.prod(draws)), dtype)
    edges = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    own = [placed(numbers[start:stop], None, "rows") for start, stop in pairwise(edges)]
    return [placed(each.reshape(-1, *draws), "units", "rows", None) for each in own]
