"""Functions to minimize: the usual continuous ones, pseudo-Boolean ones, and instances made from a seed.

Continuous functions have their minimum 0; binary ones are over {-1, +1} and are *minimized*, too, so that
OneMax counts the -1. All are JAX functions of one point.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natgrad.errors import unknown

Point = Float[Array, " variable"]
Value = Float[Array, ""]


class SearchProblem(NamedTuple):
    """A function, its family, where a search starts, and the pairs that interact (None: unknown)."""

    function: Callable[[Point], Value]
    family: str
    start: float = 0.0
    spread: float = 1.0
    edges: tuple[tuple[int, int], ...] | None = None


def sphere(x: Point) -> Value:
    """sum x^2."""
    return jnp.sum(x**2)


def ellipsoid(x: Point) -> Value:
    """sum 10^(6 i / (n - 1)) x_i^2."""
    return jnp.sum(10.0 ** (6 * jnp.linspace(0, 1, len(x), dtype=x.dtype)) * x**2)


def discus(x: Point) -> Value:
    """One steep direction: 10^6 x_1^2 + the rest."""
    return 1e6 * x[0] ** 2 + jnp.sum(x[1:] ** 2)


def cigar(x: Point) -> Value:
    """One flat direction: x_1^2 + 10^6 times the rest."""
    return x[0] ** 2 + 1e6 * jnp.sum(x[1:] ** 2)


def rosenbrock(x: Point) -> Value:
    """A bent valley; the minimum is at (1, ..., 1)."""
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def rastrigin(x: Point) -> Value:
    """A bowl with 10^n dents."""
    return jnp.sum(x**2 - 10 * jnp.cos(2 * jnp.pi * x) + 10)


def ackley(x: Point) -> Value:
    """A funnel in a field of dents."""
    far = -20 * jnp.exp(-0.2 * jnp.sqrt(jnp.mean(x**2)))
    return far - jnp.exp(jnp.mean(jnp.cos(2 * jnp.pi * x))) + 20 + jnp.e


def onemax(x: Point) -> Value:
    """How many variables are -1."""
    return jnp.sum(x < 0).astype(x.dtype)


def leadingones(x: Point) -> Value:
    """How many variables are not in the unbroken run of +1 at the beginning."""
    return len(x) - jnp.sum(jnp.cumprod(x > 0)).astype(x.dtype)


def maxcut(size: int, seed: int = 0, degree: int = 3) -> SearchProblem:
    """How many edges of a random graph are not cut: the sum of (x_i x_j + 1) / 2."""
    edges = random_edges(size, degree * size // 2, seed)
    first, second = np.asarray(edges).T

    def function(x: Point) -> Value:
        return jnp.sum(x[first] * x[second] + 1) / 2

    return SearchProblem(function, "bernoulli", edges=edges)


def nk(size: int, seed: int = 0, neighbors: int = 1) -> SearchProblem:
    """An NK landscape on a ring: the mean of n random tables of neighbors + 1 variables, negated."""
    table = np.random.default_rng(seed).uniform(size=(size, 2 ** (neighbors + 1)))
    places = (np.arange(size)[:, None] + np.arange(neighbors + 1)) % size
    powers = 2 ** np.arange(neighbors + 1)
    pairs = {(min(i, j), max(i, j)) for row in places for i in row for j in row if i != j}

    def function(x: Point) -> Value:
        rows = jnp.sum(jnp.where(x[places] > 0, powers, 0), axis=1)
        return -jnp.mean(jnp.asarray(table, x.dtype)[np.arange(size), rows])

    return SearchProblem(function, "bernoulli", edges=tuple(sorted((int(i), int(j)) for i, j in pairs)))


def sat(size: int, seed: int = 0, ratio: float = 3.5) -> SearchProblem:
    """Random 3-SAT with a planted solution: how many clauses are not satisfied."""
    rng = np.random.default_rng(seed)
    planted = rng.choice([-1.0, 1.0], size)
    clauses: list[tuple[np.ndarray, np.ndarray]] = []
    while len(clauses) < int(ratio * size):
        chosen, signs = rng.choice(size, 3, replace=False), rng.choice([-1.0, 1.0], 3)
        if np.any(planted[chosen] == signs):
            clauses.append((chosen, signs))
    places, wanted = np.stack([c for c, _ in clauses]), np.stack([s for _, s in clauses])
    pairs = {(min(i, j), max(i, j)) for row in places for i in row for j in row if i != j}

    def function(x: Point) -> Value:
        return jnp.sum(jnp.all(x[places] * jnp.asarray(wanted, x.dtype) < 0, axis=1)).astype(x.dtype)

    return SearchProblem(function, "bernoulli", edges=tuple(sorted((int(i), int(j)) for i, j in pairs)))


def random_edges(size: int, number: int, seed: int) -> tuple[tuple[int, int], ...]:
    """Different pairs, drawn at random."""
    rng = np.random.default_rng(seed)
    found: set[tuple[int, int]] = set()
    while len(found) < min(number, size * (size - 1) // 2):
        i, j = sorted(int(k) for k in rng.choice(size, 2, replace=False))
        found.add((i, j))
    return tuple(sorted(found))


_CONTINUOUS = {
    "sphere": (sphere, 3.0, 2.0),
    "ellipsoid": (ellipsoid, 3.0, 2.0),
    "discus": (discus, 3.0, 2.0),
    "cigar": (cigar, 3.0, 2.0),
    "rosenbrock": (rosenbrock, 0.0, 0.5),
    "rastrigin": (rastrigin, 3.0, 2.0),
    "ackley": (ackley, 3.0, 2.0),
}
_BINARY = {"onemax": onemax, "leadingones": leadingones}
_MADE: dict[str, Callable[..., SearchProblem]] = {"maxcut": maxcut, "nk": nk, "sat": sat}
NAMES = (*_CONTINUOUS, *_BINARY, *_MADE)


def named_problem(name: str, size: int, seed: int = 0) -> SearchProblem:
    """The problem of that name, compiled; the seed makes an instance where there are many.

    >>> float(named_problem("onemax", 3).function(jnp.array([1.0, -1.0, 1.0])))
    1.0
    """
    if name in _CONTINUOUS:
        function, start, spread = _CONTINUOUS[name]
        return SearchProblem(jax.jit(function), "gaussian", start, spread)
    if name in _BINARY:
        return SearchProblem(jax.jit(_BINARY[name]), "bernoulli")
    if name in _MADE:
        made = _MADE[name](size, seed)
        return made._replace(function=jax.jit(made.function))
    raise unknown("function", name, NAMES)
