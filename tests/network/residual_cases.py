"""A small problem of least squares: a network of two inputs, and two arrays of residuals."""

import jax.numpy as jnp
import numpy as np

WEIGHTS = {"inside": 2.0, "edge": 0.5}


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def parameters(width=3):
    return {"in": jnp.asarray(draw(2, width)), "out": jnp.asarray(draw(width, seed=1))}


BATCH = {"inside": jnp.asarray(draw(7, 2, seed=2)), "edge": jnp.asarray(draw(4, 2, seed=3))}


def residuals(p, batch):
    """Two arrays of different shapes, one of them with two residuals in a row."""
    u = lambda x: jnp.tanh(x @ p["in"]) @ p["out"]  # noqa: E731
    inside = jnp.stack([u(batch["inside"]) - 1, u(batch["inside"]) ** 2], axis=1)
    return {"inside": inside, "edge": u(batch["edge"]) + 0.3}
