"""Natural gradient for an equinox model: its arrays are the parameters, the rest is the function."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from natgrad.optax import linear, natural_gradient

model = eqx.nn.MLP(2, 1, 16, 1, activation=jnp.tanh, key=jax.random.key(0))
params, static = eqx.partition(model, eqx.is_inexact_array)
network = lambda p, x: jax.vmap(eqx.combine(p, static))(x)
x = jax.random.normal(jax.random.key(1), (64, 2))
t = jnp.sin(x[:, :1]) * x[:, 1:]
loss = lambda p: optax.l2_loss(network(p, x), t).mean()
optimizer = optax.chain(natural_gradient(network, linear(), damping=1e-3), optax.scale_by_learning_rate(0.5))
state, before = optimizer.init(params), loss(params)
for _ in range(20):
    updates, state = jax.jit(optimizer.update)(jax.grad(loss)(params), state, params, inputs=x)
    params = eqx.apply_updates(params, updates)
model = eqx.combine(params, static)
print(f"loss {before:.3f} -> {loss(params):.4f}")
