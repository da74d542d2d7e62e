"""A physics-informed network: the heat equation in one dimension of space, from a sine that fades.

u_t = u_xx / 4,   u(0, x) = sin(pi x),   u(t, 0) = u(t, 1) = 0,     u = exp(-pi^2 t / 4) sin(pi x)
"""

import jax
import jax.numpy as jnp

import natgrad

jax.config.update("jax_enable_x64", True)
WIDTH, POINTS, STEPS = 32, 300, 60


def network(p, x):
    return p["out"] @ jnp.tanh(p["in"] @ x + p["bias"])


def exact(x):
    return jnp.exp(-(jnp.pi**2) * x[0] / 4) * jnp.sin(jnp.pi * x[1])


def residuals(p, batch):
    u = lambda x: network(p, x)
    equation = lambda x: jax.grad(u)(x)[0] - jax.hessian(u)(x)[1, 1] / 4
    known = lambda x: u(x) - exact(x)
    return {"inside": jax.vmap(equation)(batch["inside"]), "known": jax.vmap(known)(batch["known"])}


keys = jax.random.split(jax.random.key(0), 5)
p = {
    "in": jax.random.normal(keys[0], (WIDTH, 2)),
    "bias": jax.random.normal(keys[1], (WIDTH,)),
    "out": jax.random.normal(keys[2], (WIDTH,)) / WIDTH,
}
inside = jax.random.uniform(keys[3], (POINTS, 2))
known = jax.random.uniform(keys[4], (POINTS // 2, 2))  # time zero, and both ends of space
known = known.at[::3, 0].set(0.0).at[1::3, 1].set(0.0).at[2::3, 1].set(1.0)


def error(p):
    points = jnp.stack(jnp.meshgrid(jnp.linspace(0, 1, 50), jnp.linspace(0, 1, 50)), -1).reshape(-1, 2)
    found, true = jax.vmap(lambda x: network(p, x))(points), jax.vmap(exact)(points)
    return jnp.linalg.norm(found - true) / jnp.linalg.norm(true)


found = natgrad.least_squares(
    residuals, p, {"inside": inside, "known": known}, method="gauss-newton", steps=STEPS
)
print(f"relative error {error(p):.4f} -> {error(found.parameters):.8f}")
