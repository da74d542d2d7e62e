"""A classifier of embedded digits by the natural gradient, with a damping that follows the loss."""

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

from natgrad.optax import Options, learning_rate, levenberg_marquardt, natural_gradient, softmax

images, labels = load_digits(return_X_y=True)
order = jax.random.permutation(jax.random.key(0), len(labels))
x, y = jnp.asarray(images, jnp.float32)[order] / 16, jnp.asarray(labels, jnp.int32)[order]
train, test = (x[:1400], y[:1400]), (x[1400:], y[1400:])


def network(p, x):
    return jnp.tanh(x @ p["in"] + p["bias"]) @ p["out"]


params = {
    "in": jax.random.normal(jax.random.key(1), (64, 30)) / 8,
    "bias": jnp.zeros(30),
    "out": jnp.zeros((30, 10)),
}
loss = lambda p, x, y: optax.softmax_cross_entropy_with_integer_labels(network(p, x), y).mean()
options = Options(damping=levenberg_marquardt(0.1), length=learning_rate(1.0))
optimizer = optax.chain(natural_gradient(network, softmax(), options=options), optax.scale(-1.0))


@jax.jit
def step(params, state, x, y):
    gradients = jax.grad(loss)(params, x, y)
    updates, state = optimizer.update(gradients, state, params, inputs=x, targets=y)
    return optax.apply_updates(params, updates), state


state, before = optimizer.init(params), loss(params, *test)
for _ in range(4):
    for first in range(0, 1400, 200):
        rows = slice(first, first + 200)
        params, state = step(params, state, train[0][rows], train[1][rows])
print(f"test loss {before:.3f} -> {loss(params, *test):.4f}")
