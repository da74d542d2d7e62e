"""Markov random fields over {-1, +1}^n: an exponential family from a list of products of variables.

    p(x; theta) = exp(sum_S theta_S prod_{i in S} x_i - psi(theta))

Exact by enumeration of all 2^n points up to `ENUMERABLE` variables; beyond that, samples come from a
Gibbs sampler, and what needs psi is refused in one sentence.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.errors import InputError
from natgrad.families.family import Expectation, Natural, Points, newton_dual

ENUMERABLE = 16
_SWEEPS = 50  # of the Gibbs sampler, from a uniform start


@dataclass(frozen=True)
class Interactions:
    """Products of variables as statistics; `terms` lists the variables of each, as ((0,), (1,), (0, 1))."""

    size: int
    terms: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        wrong = [term for term in self.terms if not set(term) <= set(range(self.size)) or not term]
        if wrong or len({tuple(sorted(term)) for term in self.terms}) < len(self.terms):
            raise InputError(
                f"the interactions must be different, not empty, and of variables 0 to {self.size - 1}, "
                f"got {wrong[0] if wrong else 'a repetition'}; correct the list of terms"
            )

    @property
    def parameters(self) -> int:
        """One per term."""
        return len(self.terms)

    @cached_property
    def members(self) -> np.ndarray:
        """Which variables (columns) each term (rows) multiplies."""
        table = np.zeros((len(self.terms), self.size))
        for row, term in enumerate(self.terms):
            table[row, list(term)] = 1
        return table

    @cached_property
    def neighbors(self) -> np.ndarray:
        """The terms (columns) of each variable (rows), filled up with the number of terms."""
        own = [np.flatnonzero(column) for column in self.members.T]
        table = np.full((self.size, max(map(len, own))), len(self.terms))
        for row, terms in zip(table, own, strict=True):
            row[: len(terms)] = terms
        return table

    @cached_property
    def points(self) -> np.ndarray:
        """All 2^n points."""
        return all_points(self.size)

    def statistics(self, points: Points) -> Float[Array, "*point parameter"]:
        """The products: -1 to the number of negative factors."""
        negative = (points < 0).astype(points.dtype) @ jnp.asarray(self.members.T, points.dtype)
        return 1 - 2 * (negative % 2)

    def log_partition(self, theta: Natural) -> Float[Array, ""]:
        """psi, a sum over all points."""
        return logsumexp(self._energies(theta))

    def negative_entropy(self, eta: Expectation) -> Float[Array, ""]:
        """phi(eta) = theta . eta - psi(theta) at theta(eta)."""
        theta = self.natural(eta)
        return jnp.vdot(theta, eta) - self.log_partition(theta)

    def expectation(self, theta: Natural) -> Expectation:
        """eta = sum of p(x) T(x) over all points."""
        return self.chances(theta) @ self._table(theta)

    def natural(self, eta: Expectation) -> Natural:
        """theta(eta), by Newton's method from the uniform distribution."""
        return newton_dual(self, eta, jnp.zeros_like(eta))

    def natural_fisher(self, theta: Natural) -> Float[Array, "parameter parameter"]:
        """Cov(T, T) over all points."""
        table, chances = self._table(theta), self.chances(theta)
        centered = table - chances @ table
        return (centered.T * chances) @ centered

    def expectation_fisher(self, eta: Expectation) -> Float[Array, "parameter parameter"]:
        """The inverse of Cov(T, T)."""
        return jnp.linalg.inv(self.natural_fisher(self.natural(eta)))

    def sample(self, key: PRNGKeyArray, theta: Natural, number: int) -> Float[Array, "number variable"]:
        """Exact draws where all points can be listed, else the ends of Gibbs chains."""
        if self.size <= ENUMERABLE:
            chosen = jax.random.categorical(key, self._energies(theta), shape=(number,))
            return jnp.asarray(self.points, theta.dtype)[chosen]  # ~ p(x; theta)
        key_start, key_chain = jax.random.split(key)
        start = jax.random.rademacher(key_start, (number, self.size), theta.dtype)
        return gibbs(key_chain, self, theta, start, _SWEEPS)

    def chances(self, theta: Natural) -> Float[Array, " state"]:
        """The probabilities of all points."""
        return jax.nn.softmax(self._energies(theta))

    def _energies(self, theta: Natural) -> Float[Array, " state"]:
        return self._table(theta) @ theta

    def _table(self, theta: Natural) -> Float[Array, "state parameter"]:
        if self.size > ENUMERABLE:
            raise InputError(
                f"exact sums go over 2^n points, which are too many for {self.size} variables (at most "
                f"{ENUMERABLE}); use samples of the Gibbs sampler instead"
            )
        return self.statistics(jnp.asarray(self.points, theta.dtype))


def pairwise(size: int, edges: Iterable[tuple[int, int]] | None = None) -> Interactions:
    """All variables, and products along edges (by default along all pairs).

    >>> pairwise(3, [(0, 2)]).terms
    ((0,), (1,), (2,), (0, 2))
    """
    chosen = combinations(range(size), 2) if edges is None else sorted({_edge(edge) for edge in edges})
    return Interactions(size, (*((i,) for i in range(size)), *chosen))


def all_points(size: int) -> np.ndarray:
    """The 2^n points of {-1, +1}^n, the last variable running fastest."""
    bits = (np.arange(2**size)[:, None] >> np.arange(size)[::-1]) & 1
    return 2.0 * bits - 1.0


def gibbs(
    key: PRNGKeyArray,
    family: Interactions,
    theta: Natural,
    start: Float[Array, "chain variable"],
    sweeps: int,
) -> Float[Array, "chain variable"]:
    """Gibbs sweeps over all variables in turn, many chains at once.

    The products are kept up to date: a flip of x_i changes the sign of those with x_i in them, which are all
    that a turn of x_i reads and writes.
    """
    touched = jnp.asarray(family.neighbors)  # [variable, term], filled up with a term that is not there
    padded = jnp.append(theta, 0.0)
    fields = padded[touched]
    products = jnp.append(family.statistics(start).T, jnp.ones((1, len(start)), theta.dtype), axis=0)

    def sweep(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        shape = (family.size, len(start))
        logits = jax.random.logistic(jax.random.fold_in(key, number), shape, theta.dtype)

        def turn(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            points, products = carry
            near = products[touched[i]]
            field = (fields[i] @ near) * points[i]
            fresh = jnp.where(logits[i] < 2 * field, 1.0, -1.0).astype(theta.dtype)  # ~ p(x_i | rest)
            return points.at[i].set(fresh), products.at[touched[i]].set(near * (fresh * points[i]))

        return jax.lax.fori_loop(0, family.size, turn, carry)

    return jax.lax.fori_loop(0, sweeps, sweep, (start.T, products))[0].T


def _edge(edge: tuple[int, int]) -> tuple[int, int]:
    first, second = sorted(edge)
    return first, second
