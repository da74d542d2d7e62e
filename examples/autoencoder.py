"""An autoencoder of embedded digits: the natural gradient of Bernoulli pixels, by conjugate gradients."""

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

from natgrad.optax import (
    Options,
    conjugate_gradient,
    learning_rate,
    levenberg_marquardt,
    natural_gradient,
    sigmoid,
)

images = jnp.asarray(load_digits().data, jnp.float32) / 16
train, test = images[:1400], images[1400:]
SIZES = (64, 40, 10, 40, 64)


def network(p, x):
    for layer in p[:-1]:
        x = jnp.tanh(x @ layer["weight"] + layer["bias"])
    return x @ p[-1]["weight"] + p[-1]["bias"]


keys = jax.random.split(jax.random.key(0), len(SIZES))
params = [
    {"weight": jax.random.normal(key, (a, b)) / jnp.sqrt(a), "bias": jnp.zeros(b)}
    for key, a, b in zip(keys, SIZES, SIZES[1:], strict=False)
]
loss = lambda p, x: optax.sigmoid_binary_cross_entropy(network(p, x), x).sum(axis=1).mean()
options = Options(damping=levenberg_marquardt(1.0), length=learning_rate(1.0), warm_start=0.9)
natural = natural_gradient(network, sigmoid(), solver=conjugate_gradient(30), options=options)
optimizer = optax.chain(natural, optax.scale(-1.0))


@jax.jit
def step(params, state, x):
    updates, state = optimizer.update(jax.grad(loss)(params, x), state, params, inputs=x, targets=x)
    return optax.apply_updates(params, updates), state


state, before = optimizer.init(params), loss(params, test)
for _ in range(8):
    for first in range(0, 1400, 350):
        params, state = step(params, state, train[first : first + 350])
floor = -(test * jnp.log(jnp.clip(test, 1e-6)) + (1 - test) * jnp.log(jnp.clip(1 - test, 1e-6))).sum(1).mean()
print(f"loss above the pixels' own entropy {before - floor:.3f} -> {loss(params, test) - floor:.4f}")
