"""What an exponential family is, and what follows from it alone.

    p(x; theta) = exp(theta . T(x) - psi(theta)),      eta = E[T] = grad psi(theta)

Natural parameters theta and expectation parameters eta are dual: theta = grad phi(eta), where phi is
the negative entropy, and psi(theta) + phi(eta) = theta . eta. Everything here is a plain function of a
family and its parameters, all of them vectors [amari1998, slides].
"""

from typing import Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

Natural = Float[Array, " parameter"]
Expectation = Float[Array, " parameter"]
Points = Float[Array, "*point variable"]


class Family(Protocol):
    """A family is a frozen, hashable description: sizes and structure, no parameters."""

    @property
    def size(self) -> int:
        """How many variables a point has."""

    @property
    def parameters(self) -> int:
        """The length of theta."""

    def statistics(self, points: Points) -> Float[Array, "*point parameter"]:
        """T(x), for one point or many."""

    def log_partition(self, theta: Natural) -> Float[Array, ""]:
        """psi(theta)."""

    def negative_entropy(self, eta: Expectation) -> Float[Array, ""]:
        """phi(eta), the convex dual of psi."""

    def expectation(self, theta: Natural) -> Expectation:
        """eta = grad psi(theta)."""

    def natural(self, eta: Expectation) -> Natural:
        """theta = grad phi(eta)."""

    def natural_fisher(self, theta: Natural) -> Float[Array, "parameter parameter"]:
        """The Fisher matrix in theta: Hess psi = Cov(T, T)."""

    def expectation_fisher(self, eta: Expectation) -> Float[Array, "parameter parameter"]:
        """The Fisher matrix in eta: Hess phi, the inverse of the one in theta."""

    def sample(self, key: PRNGKeyArray, theta: Natural, number: int) -> Float[Array, "number variable"]:
        """Independent draws."""


def log_density(family: Family, theta: Natural, points: Points) -> Float[Array, "*point"]:
    """log p(x; theta) = theta . T(x) - psi(theta)."""
    return family.statistics(points) @ theta - family.log_partition(theta)


def entropy(family: Family, theta: Natural) -> Float[Array, ""]:
    """The entropy in nats, -phi(eta)."""
    return -family.negative_entropy(family.expectation(theta))


def divergence(family: Family, left: Natural, right: Natural) -> Float[Array, ""]:
    """KL(p_left || p_right) in nats: the Bregman divergence of psi, arguments exchanged.

    >>> from natgrad.families.independence import Independence
    >>> float(divergence(Independence(2), jnp.array([0.3, 1.0]), jnp.array([0.3, 1.0])))
    0.0
    """
    drop = jnp.vdot(family.expectation(left), right - left)
    return family.log_partition(right) - family.log_partition(left) - drop


def legendre_gap(family: Family, theta: Natural, eta: Expectation) -> Float[Array, ""]:
    """psi(theta) + phi(eta) - theta . eta: zero where theta and eta are the same point, else positive."""
    return family.log_partition(theta) + family.negative_entropy(eta) - jnp.vdot(theta, eta)


def newton_dual(family: Family, eta: Expectation, start: Natural, steps: int = 50) -> Natural:
    """theta(eta) without a closed form: the maximum of theta . eta - psi(theta), by Newton's method.

    Steps are halved until the dual function rises, so that psi stays finite. The last step is taken
    outside the loop: its derivative is that of the implicit function.
    """

    def value(theta: Natural) -> Float[Array, ""]:
        return jnp.vdot(theta, eta) - family.log_partition(theta)

    def improve(carry: tuple[Natural, Array, Array]) -> tuple[Natural, Array, Array]:
        theta, _, count = carry
        slope = eta - family.expectation(theta)
        direction = jnp.linalg.solve(family.natural_fisher(theta), slope)
        rise = jnp.vdot(slope, direction)

        def short(length: Array) -> Array:
            enough = value(theta + length * direction) >= value(theta) + 0.25 * length * rise
            return ~enough & (length > 1e-6)

        small = rise < 1e-12  # rounding decides the comparison of values there: take Newton's step as it is
        length = jax.lax.while_loop(short, lambda step: step / 2, jnp.ones_like(rise))
        return theta + jnp.where(small, 1.0, length) * direction, rise, count + 1

    def unfinished(carry: tuple[Natural, Array, Array]) -> Array:
        return (carry[1] > 1e-26) & (carry[2] < steps)

    first = (start, jnp.full((), jnp.inf, eta.dtype), jnp.zeros((), int))
    fixed = jax.lax.stop_gradient(jax.lax.while_loop(unfinished, improve, first)[0])
    fisher = family.natural_fisher(fixed)
    return fixed + jnp.linalg.solve(fisher, eta - family.expectation(fixed))
