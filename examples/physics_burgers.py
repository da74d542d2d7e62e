"""A physics-informed network: Burgers' equation, whose waves steepen.

    u_t + u u_x = nu u_xx,   u(0, x) = -sin(pi x),   u(t, -1) = u(t, 1) = 0

The solution by the Cole-Hopf transformation is an integral, here by Gauss-Hermite quadrature.
"""

import jax
import jax.numpy as jnp
import numpy as np

import natgrad

jax.config.update("jax_enable_x64", True)
WIDTH, POINTS, STEPS, NU = 40, 800, 300, 0.1 / np.pi
NODES, WEIGHTS = map(jnp.asarray, np.polynomial.hermite.hermgauss(60))


def network(p, x):
    return p["out"] @ jnp.tanh(p["in"] @ x + p["bias"])


def exact(x):
    """A quotient of two integrals over starting points x - shift, weighted by exp(-cos(pi y) / (2 pi nu))."""
    t, place = x
    shifted = jnp.pi * (place - jnp.sqrt(4 * NU * t) * NODES)
    logs = jnp.log(WEIGHTS) - jnp.cos(shifted) / (2 * jnp.pi * NU)
    return -(jax.nn.softmax(logs) * jnp.sin(shifted)).sum()


def residuals(p, batch):
    u = lambda x: network(p, x)

    def equation(x):
        slope = jax.grad(u)(x)
        return slope[0] + u(x) * slope[1] - NU * jax.hessian(u)(x)[1, 1]

    known = lambda x: u(x) - jnp.where(x[0] > 0, 0.0, -jnp.sin(jnp.pi * x[1]))
    return {"inside": jax.vmap(equation)(batch["inside"]), "known": jax.vmap(known)(batch["known"])}


keys = jax.random.split(jax.random.key(0), 5)
p = {
    "in": jax.random.normal(keys[0], (WIDTH, 2)),
    "bias": jax.random.normal(keys[1], (WIDTH,)),
    "out": jax.random.normal(keys[2], (WIDTH,)) / WIDTH,
}
spread = jnp.asarray([1.0, 2.0])
inside = jax.random.uniform(keys[3], (POINTS, 2)) * spread - jnp.asarray([0.0, 1.0])
known = jax.random.uniform(keys[4], (POINTS // 2, 2)) * spread - jnp.asarray([0.0, 1.0])
known = known.at[::2, 0].set(0.0).at[1::4, 1].set(-1.0).at[3::4, 1].set(1.0)


def error(p):
    grid = jnp.meshgrid(jnp.linspace(0.05, 1, 40), jnp.linspace(-1, 1, 60))
    points = jnp.stack(grid, -1).reshape(-1, 2)
    found, true = jax.vmap(lambda x: network(p, x))(points), jax.vmap(exact)(points)
    return jnp.linalg.norm(found - true) / jnp.linalg.norm(true)


batch, weights = {"inside": inside, "known": known}, {"inside": 1.0, "known": 10.0}
found = natgrad.least_squares(residuals, p, batch, weights=weights, steps=STEPS)
print(f"relative error {error(p):.4f} -> {error(found.parameters):.8f}")
