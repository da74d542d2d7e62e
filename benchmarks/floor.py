"""The matrix products that a reweighted wake-sleep step cannot avoid, and nothing else.

Wake: recognition forward (its first layer on the data rows only), generation forward. Dreams:
generation forward, recognition forward. Gradients: generation from wake; recognition from both.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from natgrad.layers.bernoulli import Layer
from natgrad.models.helmholtz.machine import Helmholtz


def products(model: Helmholtz, visible: Array, samples: int) -> Helmholtz:
    """Gradients' shapes from linear passes: the same products as a step, no random numbers, no sigmoids."""
    rows = visible.shape[1]
    wake = [visible, jnp.tile(model.recognition[0].weight @ visible, (1, samples))]
    for layer in model.recognition[1:]:
        wake.append(layer.weight @ wake[-1])
    down = [layer.weight @ value for layer, value in zip(model.generation, wake[1:], strict=True)]
    dreams = [jnp.ones_like(wake[-1]) * model.prior[:, None]]  # as in a step, they need not wait for wake
    for layer in model.generation[::-1]:
        dreams.insert(0, layer.weight @ dreams[0])
    up = [layer.weight @ value for layer, value in zip(model.recognition, dreams[:-1], strict=True)]
    generation = [a @ h.T for a, h in zip(down, wake[1:], strict=True)]
    from_wake = [wake[1][:, :rows] @ visible.T] + [a @ h.T for a, h in zip(wake[2:], wake[1:-1], strict=True)]
    from_dreams = [a @ h.T for a, h in zip(up, dreams[:-1], strict=True)]
    recognition = [a + b for a, b in zip(from_wake, from_dreams, strict=True)]
    stack = lambda weights, layers: tuple(Layer(w, l.bias) for w, l in zip(weights, layers, strict=True))  # noqa: E731, E741
    return Helmholtz(
        model.prior, stack(generation, model.generation), stack(recognition, model.recognition), model.coding
    )


def loop(samples: int):
    """A function that runs the products as many times as asked, each turn depending on the last."""

    def run(model: Helmholtz, visible: Array, start: Array, stop: Array) -> Helmholtz:
        def body(turn: Array, model: Helmholtz) -> Helmholtz:
            del turn
            moved = products(model, visible, samples)
            return jax.tree.map(lambda w, g: w - 1e-12 * g, model, moved)

        return jax.lax.fori_loop(start, stop, body, model)

    return run
