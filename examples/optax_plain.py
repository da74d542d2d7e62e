"""Natural gradient for a plain function of a dictionary, in an optax chain."""

import jax
import jax.numpy as jnp
import optax

from natgrad.optax import natural_gradient, sigmoid


def network(p, x):
    return jnp.tanh(x @ p["in"] + p["bias"]) @ p["out"]


x = jax.random.normal(jax.random.key(0), (64, 2))
t = (x[:, :1] * x[:, 1:] > 0).astype(x.dtype)
params = {"in": jax.random.normal(jax.random.key(1), (2, 8)), "bias": jnp.zeros(8), "out": jnp.ones((8, 1))}
loss = lambda p: optax.sigmoid_binary_cross_entropy(network(p, x), t).mean()
optimizer = optax.chain(natural_gradient(network, sigmoid(), damping=0.01), optax.scale_by_learning_rate(0.5))
state, before = optimizer.init(params), loss(params)
for _ in range(20):
    updates, state = jax.jit(optimizer.update)(jax.grad(loss)(params), state, params, inputs=x)
    params = optax.apply_updates(params, updates)
print(f"loss {before:.3f} -> {loss(params):.4f}")
