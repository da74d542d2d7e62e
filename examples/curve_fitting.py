"""Curve fitting: two decays and a constant, from noisy measurements with known errors."""

import jax
import jax.numpy as jnp
import numpy as np

import natgrad

jax.config.update("jax_enable_x64", True)

times, rng = np.linspace(0, 5, 80), np.random.default_rng(0)
sigma = 0.01 + 0.01 * times
values = 2.0 * np.exp(-3.0 * times) + 1.0 * np.exp(-0.5 * times) + 0.2 + sigma * rng.normal(size=80)


def curve(p, t):
    return p["heights"] @ jnp.exp(-p["rates"] * t) + p["floor"]


def residuals(p, batch):
    t, y, sigma = batch
    return (jax.vmap(lambda t: curve(p, t))(t) - y) / sigma


start = {"heights": jnp.asarray([1.0, 1.0]), "rates": jnp.asarray([1.0, 0.1]), "floor": jnp.asarray(0.0)}
batch = tuple(map(jnp.asarray, (times, values, sigma)))
found = natgrad.least_squares(residuals, start, batch)
before = 0.5 * jnp.mean(residuals(start, batch) ** 2)
print(f"loss {before:.3f} -> {found.loss:.4f}")
