"""Differential equations whose solutions are known, for networks that are trained on their residuals."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Equation(NamedTuple):
    """Inside a unit cube `inside(u, x)` is zero, on its border `u` is the solution.

    `border` makes points of the border out of points of the cube, [point, dimension], by NumPy.
    """

    dimension: int
    points: tuple[int, int]
    solution: Callable[[Any], Any]
    inside: Callable[[Callable[[Any], Any], Any], Any]
    border: Callable[[np.ndarray], np.ndarray]


def second(u: Callable[[Any], Any], x: Any, axis: int) -> Any:
    """The second derivative along an axis."""
    along = jnp.zeros_like(x).at[axis].set(1)
    return jax.jvp(lambda y: jax.jvp(u, (y,), (along,))[1], (x,), (along,))[1]


def laplacian(u: Callable[[Any], Any], x: Any) -> Any:
    return sum(second(u, x, axis) for axis in range(x.size))


def faces(points: np.ndarray) -> np.ndarray:
    """Points in turn on every face of the cube."""
    found, dimension = points.copy(), points.shape[1]
    for number, point in enumerate(found):
        point[number // 2 % dimension] = number % 2
    return found


def start_and_ends(points: np.ndarray) -> np.ndarray:
    """Half of the points at time zero (the first axis), the others at both ends of space."""
    found = points.copy()
    found[::2, 0] = 0
    found[1::2, 1] = np.arange(len(found[1::2])) % 2
    return found


def heat(u: Callable[[Any], Any], x: Any) -> Any:
    """u_t - u_xx / 4."""
    return jax.grad(u)(x)[0] - 0.25 * second(u, x, 1)


def two_sines(x: Any) -> Any:
    return jnp.sin(jnp.pi * x[0]) * jnp.sin(jnp.pi * x[1])


def sum_of_sines(x: Any) -> Any:
    return jnp.sin(jnp.pi * x).sum()


def fading(x: Any) -> Any:
    return jnp.exp(-(jnp.pi**2) * x[0] / 4) * jnp.sin(jnp.pi * x[1])


EQUATIONS = {
    "poisson2": Equation(
        2, (900, 120), two_sines, lambda u, x: laplacian(u, x) + 2 * jnp.pi**2 * two_sines(x), faces
    ),
    "heat": Equation(2, (900, 120), fading, heat, start_and_ends),
    "poisson5": Equation(
        5, (3000, 500), sum_of_sines, lambda u, x: laplacian(u, x) + jnp.pi**2 * sum_of_sines(x), faces
    ),
}
WIDTH = 64


def network(p: Any, x: Any) -> Any:
    """One layer of tanh units."""
    return p["out"] @ jnp.tanh(p["in"] @ x + p["bias"]) + p["shift"]


def fresh(equation: Equation, seed: int) -> dict[str, Any]:
    """Uniform weights within one over the root of the inputs' number."""
    rng = np.random.default_rng(seed)

    def draw(inputs: int, *shape: int) -> Any:
        return jnp.asarray(rng.uniform(-1, 1, shape) / np.sqrt(inputs))

    inputs = equation.dimension
    return {
        "in": draw(inputs, WIDTH, inputs),
        "bias": draw(inputs, WIDTH),
        "out": draw(WIDTH, WIDTH),
        "shift": draw(WIDTH),
    }


def batch_of(equation: Equation, seed: int) -> dict[str, Any]:
    """Points that stay the same through a training, drawn uniformly."""
    rng = np.random.default_rng([1, seed])
    inside, border = (rng.uniform(size=(number, equation.dimension)) for number in equation.points)
    return {"inside": jnp.asarray(inside), "border": jnp.asarray(equation.border(border))}


def residuals_of(equation: Equation) -> Callable[[Any, Any], Any]:
    def residuals(p: Any, batch: Any) -> Any:
        u = lambda x: network(p, x)  # noqa: E731
        return {
            "inside": jax.vmap(lambda x: equation.inside(u, x))(batch["inside"]),
            "border": jax.vmap(lambda x: u(x) - equation.solution(x))(batch["border"]),
        }

    return residuals


def loss_of(equation: Equation) -> Callable[[Any, Any], Any]:
    """(1/2) of the sum of both means of squares: the same for every method."""
    residuals = residuals_of(equation)
    return lambda p, batch: sum(0.5 * (r**2).mean() for r in jax.tree.leaves(residuals(p, batch)))


def relative_error(equation: Equation, key: int, number: int = 5000) -> Callable[[Any], float]:
    """The L2 distance from the solution over the solution's length, at points of their own."""
    points = jnp.asarray(np.random.default_rng([2, key]).uniform(size=(number, equation.dimension)))
    exact = jax.vmap(equation.solution)(points)

    @jax.jit
    def error(p: Any) -> Any:
        found = jax.vmap(lambda x: network(p, x))(points)
        return jnp.linalg.norm(found - exact) / jnp.linalg.norm(exact)

    return lambda p: float(error(p))
