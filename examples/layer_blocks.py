"""A convolutional network in equinox by the blocks of its layers (K-FAC): nothing is registered by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

from natgrad.optax import layer_report, layerwise_gradient, linked, softmax

images, labels = load_digits(return_X_y=True)
order = jax.random.permutation(jax.random.key(0), len(labels))
x = jnp.asarray(images, jnp.float32)[order].reshape(-1, 1, 8, 8) / 16
y = jnp.asarray(labels, jnp.int32)[order]
train, test = (x[:1400], y[:1400]), (x[1400:], y[1400:])


class Net(eqx.Module):
    """Two convolutions and a dense layer."""

    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    last: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.first = eqx.nn.Conv2d(1, 8, 3, padding=1, key=keys[0])
        self.second = eqx.nn.Conv2d(8, 16, 3, stride=2, padding=1, key=keys[1])
        self.last = eqx.nn.Linear(256, 10, key=keys[2])

    def __call__(self, image):
        """The outputs for one image."""
        found = jax.nn.relu(self.second(jax.nn.relu(self.first(image))))
        return self.last(found.reshape(-1))


params, static = eqx.partition(Net(jax.random.key(1)), eqx.is_inexact_array)
network = lambda p, x: jax.vmap(eqx.combine(p, static))(x)
loss = lambda p, x, y: optax.softmax_cross_entropy_with_integer_labels(network(p, x), y).mean()
print("\n".join(layer_report(network, params, x)))
optimizer = linked(
    layerwise_gradient(network, softmax(), x, damping=0.1, refresh=20),
    optax.trace(0.9),
    optax.scale_by_learning_rate(0.02),
)


@jax.jit
def step(params, state, x, y):
    updates, state = optimizer.update(jax.grad(loss)(params, x, y), state, params, inputs=x)
    return optax.apply_updates(params, updates), state


state, before = optimizer.init(params), loss(params, *test)
for _ in range(5):
    for first in range(0, 1400, 100):
        rows = slice(first, first + 100)
        params, state = step(params, state, train[0][rows], train[1][rows])
print(f"test loss {before:.3f} -> {loss(params, *test):.4f}")
