"""Natural gradient for a flax module, with the metric on rows that have no labels."""

import jax
import optax
from flax import linen as nn

from natgrad.optax import levenberg_marquardt, natural_gradient, softmax

module = nn.Sequential([nn.Dense(16), nn.tanh, nn.Dense(3)])
x, unlabeled = jax.random.normal(jax.random.key(0), (2, 64, 2))
t = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0).astype(int)
params = module.init(jax.random.key(1), x)
loss = lambda p: optax.softmax_cross_entropy_with_integer_labels(module.apply(p, x), t).mean()
natural = natural_gradient(module.apply, softmax(), damping=levenberg_marquardt(0.1))
optimizer = optax.chain(natural, optax.scale_by_learning_rate(1.0))
state, before = optimizer.init(params), loss(params)
for _ in range(20):
    extra = {"inputs": x, "targets": t, "metric_inputs": unlabeled}
    updates, state = jax.jit(optimizer.update)(jax.grad(loss)(params), state, params, **extra)
    params = optax.apply_updates(params, updates)
print(f"loss {before:.3f} -> {loss(params):.4f}")
