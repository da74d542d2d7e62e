"""Differential equations whose solutions are known, for networks that are trained on their residuals."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Residual = Callable[[Callable[[Any], Any], Any], Any]


class Equation(NamedTuple):
    """Inside a unit cube `inside(u, x)` is zero, on its border `u` is the solution.

    Attributes:
        dimension: of the cube; where there is time, it is the first axis.
        points: how many inside, how many on the border.
        solution: what is sought; known, so that errors can be told.
        inside: from a function and a point to the residual.
        border: makes points of the border out of points of the cube, [point, dimension], by NumPy.
        seconds: of CPU time that every method has.
        natural: natgrad's methods that are tried.
        widths: of the network's layers of tanh units.
        crowded: moves points inside to where the solution is steep, by NumPy.
    """

    dimension: int
    points: tuple[int, int]
    solution: Callable[[Any], Any]
    inside: Residual
    border: Callable[[np.ndarray], np.ndarray]
    seconds: float
    natural: tuple[str, ...] = ("natgrad gauss-newton", "natgrad lm")
    widths: tuple[int, ...] = (64,)
    crowded: Callable[[np.ndarray], np.ndarray] = lambda points: points


def second(u: Callable[[Any], Any], x: Any, along: Any) -> Any:
    """The second derivative along a direction."""
    return jax.jvp(lambda y: jax.jvp(u, (y,), (along,))[1], (x,), (along,))[1]


def laplacian(u: Callable[[Any], Any], x: Any) -> Any:
    """Forward in forward mode: the network itself is passed once, not once for each axis."""
    return jax.vmap(lambda along: second(u, x, along))(jnp.eye(x.size, dtype=x.dtype)).sum()


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


def slope_and_bend(u: Callable[[Any], Any], x: Any) -> tuple[Any, Any, Any]:
    """Of a function of time and place: the derivatives u_t, u_x and u_xx."""
    time, place = jnp.eye(2, dtype=x.dtype)
    slope = lambda y: jax.jvp(u, (y,), (place,))[1]  # noqa: E731
    return jax.jvp(u, (x,), (time,))[1], *jax.jvp(slope, (x,), (place,))


def heat(u: Callable[[Any], Any], x: Any) -> Any:
    """u_t - u_xx / 4."""
    u_t, _, u_xx = slope_and_bend(u, x)
    return u_t - 0.25 * u_xx


def burgers(viscosity: float) -> Residual:
    """u_t + u u_y - viscosity u_yy, for y = 2 x - 1 from -1 to 1."""

    def inside(u: Callable[[Any], Any], x: Any) -> Any:
        u_t, u_x, u_xx = slope_and_bend(u, x)
        return u_t + u(x) * u_x / 2 - viscosity * u_xx / 4

    return inside


def steepening(viscosity: float) -> Callable[[Any], Any]:
    """The wave that begins as -sin(pi y), by the transformation of Cole and Hopf: a quotient of integrals.

    They are over where a particle came from, weighted by a Gaussian and exp(-cos(pi y) / (2 pi viscosity));
    by the trapezoidal rule, whose error for such integrands is that of rounding.
    """

    def wave(x: Any) -> Any:
        nodes = jnp.linspace(-12.0, 12.0, 401, dtype=x.dtype)
        origins = jnp.pi * (2 * x[1] - 1 - jnp.sqrt(4 * viscosity * x[0]) * nodes)
        weights = jax.nn.softmax(-(nodes**2) - jnp.cos(origins) / (2 * jnp.pi * viscosity))
        return -(weights * jnp.sin(origins)).sum()

    return wave


def towards_the_middle(points: np.ndarray) -> np.ndarray:
    """Half of the points nearer to the middle of space, where the wave is steep."""
    found = points.copy()
    found[::2, 1] = 0.5 + 0.5 * (2 * found[::2, 1] - 1) ** 5
    return found


def two_sines(x: Any) -> Any:
    return jnp.sin(jnp.pi * x[0]) * jnp.sin(jnp.pi * x[1])


def sum_of_sines(x: Any) -> Any:
    return jnp.sin(jnp.pi * x).sum()


def fading(x: Any) -> Any:
    return jnp.exp(-(jnp.pi**2) * x[0] / 4) * jnp.sin(jnp.pi * x[1])


def poisson(u: Callable[[Any], Any], x: Any) -> Any:
    """The Laplacian of u minus that of a sum of sines."""
    return laplacian(u, x) + jnp.pi**2 * sum_of_sines(x)


SMOOTH, STEEP = 0.1 / np.pi, 0.01 / np.pi  # viscosities of Burgers' equation
EQUATIONS = {
    "poisson2": Equation(
        2, (900, 120), two_sines, lambda u, x: laplacian(u, x) + 2 * jnp.pi**2 * two_sines(x), faces, 30.0
    ),
    "heat": Equation(2, (900, 120), fading, heat, start_and_ends, 30.0, natural=("natgrad lm",)),
    "burgers": Equation(
        *(2, (1500, 300), steepening(SMOOTH), burgers(SMOOTH), start_and_ends, 60.0),
        natural=("natgrad lm",),
        widths=(20, 20),
    ),
    "burgers-steep": Equation(
        *(2, (2000, 300), steepening(STEEP), burgers(STEEP), start_and_ends, 60.0),
        natural=("natgrad lm",),
        widths=(20, 20),
        crowded=towards_the_middle,
    ),
    "poisson5": Equation(5, (3000, 500), sum_of_sines, poisson, faces, 150.0, natural=("natgrad lm",)),
    "poisson5-deep": Equation(
        *(5, (3000, 500), sum_of_sines, poisson, faces, 90.0),
        natural=("natgrad lm",),
        widths=(64, 64, 48, 48),
    ),
}


def network(p: Any, x: Any) -> Any:
    """Layers of tanh units, then one number."""
    *hidden, last = p
    for layer in hidden:
        x = jnp.tanh(layer["weight"] @ x + layer["bias"])
    return (last["weight"] @ x + last["bias"])[0]


def fresh(equation: Equation, seed: int) -> list[dict[str, Any]]:
    """Uniform weights within one over the root of the inputs' number."""
    rng = np.random.default_rng(seed)
    sizes = (equation.dimension, *equation.widths, 1)

    def draw(inputs: int, *shape: int) -> Any:
        return jnp.asarray(rng.uniform(-1, 1, shape) / np.sqrt(inputs))

    return [{"weight": draw(i, o, i), "bias": draw(i, o)} for i, o in itertools.pairwise(sizes)]


def batch_of(equation: Equation, seed: int) -> dict[str, Any]:
    """Points that stay the same through a training, drawn uniformly."""
    rng = np.random.default_rng([1, seed])
    inside, border = (rng.uniform(size=(number, equation.dimension)) for number in equation.points)
    return {"inside": jnp.asarray(equation.crowded(inside)), "border": jnp.asarray(equation.border(border))}


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
