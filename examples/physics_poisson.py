"""A physics-informed network: Poisson's equation on the unit square, u = 0 on its border.

u_xx + u_yy = -2 pi^2 sin(pi x) sin(pi y),     u = sin(pi x) sin(pi y)
"""

import jax
import jax.numpy as jnp

import natgrad

jax.config.update("jax_enable_x64", True)
WIDTH, POINTS, STEPS = 32, 300, 60


def network(p, x):
    return p["out"] @ jnp.tanh(p["in"] @ x + p["bias"])


def exact(x):
    return jnp.sin(jnp.pi * x[0]) * jnp.sin(jnp.pi * x[1])


def residuals(p, batch):
    u = lambda x: network(p, x)
    equation = lambda x: jnp.trace(jax.hessian(u)(x)) + 2 * jnp.pi**2 * exact(x)
    return {"inside": jax.vmap(equation)(batch["inside"]), "border": jax.vmap(u)(batch["border"])}


keys = jax.random.split(jax.random.key(0), 5)
p = {
    "in": jax.random.normal(keys[0], (WIDTH, 2)),
    "bias": jax.random.normal(keys[1], (WIDTH,)),
    "out": jax.random.normal(keys[2], (WIDTH,)) / WIDTH,
}
inside = jax.random.uniform(keys[3], (POINTS, 2))
side = jax.random.uniform(keys[4], (POINTS // 3, 2)).at[::2, 0].set(0.0).at[1::2, 1].set(0.0)
border = jnp.concatenate([side, 1 - side])  # all four sides


def error(p):
    points = jnp.stack(jnp.meshgrid(jnp.linspace(0, 1, 50), jnp.linspace(0, 1, 50)), -1).reshape(-1, 2)
    found, true = jax.vmap(lambda x: network(p, x))(points), jax.vmap(exact)(points)
    return jnp.linalg.norm(found - true) / jnp.linalg.norm(true)


found = natgrad.least_squares(
    residuals, p, {"inside": inside, "border": border}, method="gauss-newton", steps=STEPS
)
print(f"relative error {error(p):.4f} -> {error(found.parameters):.8f}")
