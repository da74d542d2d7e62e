"""MINRES-QLP: the solution of minimum length of a symmetric system, singular or not [choi2011].

Lanczos makes the operator tridiagonal, T = V^T A V. Reflections from the left make it upper triangular
(that is MINRES), reflections from the right lower triangular, L: the solution x = W u with L u = t is
then built from orthonormal columns W, so that it cannot grow along the null space. Where the system
has no solution, the least-squares solution of minimum length is found [choi2011 sec. 3]; conjugate
gradients would diverge there. One product per iteration, and one for the residual at the end.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natgrad import tree
from natgrad.core import Model, Solver
from natgrad.errors import InputError
from natgrad.solvers.results import CONVERGED, FAILED, LIMIT, SINGULAR
from natgrad.solvers.whole import Found, System, iterative

Scalar = Float[Array, ""]


class Lanczos(NamedTuple):
    """The last two basis vectors and the element of T between them."""

    vector: Model
    before: Model
    beta: Scalar


class Left(NamedTuple):
    """The last reflection from the left, what it made of the next column, the residual's norm, and |A|."""

    cosine: Scalar
    sine: Scalar
    delta: Scalar
    epsilon: Scalar
    residual: Scalar
    size: Scalar


class Lower(NamedTuple):
    """One row of L u = t: eta u_{k-2} + theta u_{k-1} + gamma u_k = tau."""

    eta: Scalar
    theta: Scalar
    gamma: Scalar
    tau: Scalar


class Carry(NamedTuple):
    """At iteration k: rows k-1 and k-2 of L, the columns of W that may still change, u_{k-3}, u_{k-4}.

    `settled` is the solution from all columns before k-2; `value` the whole.
    """

    iteration: Int[Array, ""]
    lanczos: Lanczos
    left: Left
    rows: tuple[Lower, Lower]
    columns: tuple[Model, Model]
    known: tuple[Scalar, Scalar]
    settled: Model
    value: Model
    result: Int[Array, ""]


def minres_qlp(iterations: int = 50, *, tolerance: float = 1e-4, singular: float | None = None) -> Solver:
    """Minimum-length solutions of singular, indefinite or ill-conditioned symmetric systems.

    Args:
        iterations: the most that are made.
        tolerance: stop when the residual is that small a part of the right-hand side.
        singular: stop, and say so, when |A r| is that small a part of |A| |r|; eps^(2/3) by default.
    """
    if iterations < 1:
        raise InputError(f"MINRES-QLP needs at least one iteration, got {iterations}")

    def iterate(system: System, gradient: Model, guess: Model | None) -> Found:
        right = gradient if guess is None else tree.subtract(gradient, system.mv(guess))
        length = tree.norm(right)
        limit = jnp.finfo(length.dtype).eps ** (2 / 3) if singular is None else singular
        stop = (tolerance * tree.norm(gradient), jnp.asarray(limit, length.dtype))

        def more(carry: Carry) -> Bool[Array, ""]:
            return (carry.result == LIMIT) & (carry.iteration < iterations)

        found = jax.lax.while_loop(more, lambda carry: _advance(system, carry, stop), _start(right, length))
        value = found.value if guess is None else tree.add(guess, found.value)
        finite = jnp.isfinite(tree.vdot(value, value))
        residual = tree.subtract(gradient, system.mv(value))
        return Found(value, residual, found.iteration, jnp.where(finite, found.result, FAILED))

    return iterative(iterate)


def _start(right: Model, length: Scalar) -> Carry:
    zero, nothing = jnp.zeros_like(length), tree.zeros(right)
    lanczos = Lanczos(tree.scale(_divide(1.0, length), right), nothing, zero)
    left = Left(zero - 1, zero, zero, zero, length, zero)
    row = Lower(zero, zero, zero, zero)
    done = jnp.where(length > 0, LIMIT, CONVERGED)
    return Carry(
        jnp.zeros((), jnp.int32),
        lanczos,
        left,
        (row, row),
        (nothing, nothing),
        (zero, zero),
        nothing,
        nothing,
        done,
    )


def _advance(system: System, carry: Carry, stop: tuple[Scalar, Scalar]) -> Carry:
    v = carry.lanczos.vector
    lanczos, alpha = _lanczos(system, carry.lanczos)
    column, left, flat = _reflect_left(carry.left, alpha, carry.lanczos.beta, lanczos.beta)
    is_singular = flat <= stop[1]  # |A r_{k-1}| / (|A| |r_{k-1}|): x_{k-1} solves the least-squares problem
    (older, old), new, turns = _reflect_right(carry.rows, column)
    columns, last = _turn(carry.columns, v, turns)
    u_before = carry.known
    first = _divide(older.tau - older.eta * u_before[1] - older.theta * u_before[0], older.gamma)
    second = _divide(old.tau - old.eta * u_before[0] - old.theta * first, old.gamma)
    third = _divide(new.tau - new.eta * first - new.theta * second, new.gamma)
    third = jnp.where(is_singular, 0, third)
    settled = tree.axpy(first, columns[1], carry.settled)
    value = tree.axpy(third, last, tree.axpy(second, columns[0], settled))
    solved = (left.residual <= stop[0]) & ~is_singular
    result = jnp.where(is_singular, SINGULAR, jnp.where(solved, CONVERGED, LIMIT))
    return Carry(
        carry.iteration + 1,
        lanczos,
        left,
        (new, old),
        (last, columns[0]),
        (first, u_before[0]),
        settled,
        value,
        result,
    )


def _lanczos(system: System, last: Lanczos) -> tuple[Lanczos, Scalar]:
    product = tree.axpy(-last.beta, last.before, system.mv(last.vector))
    alpha = tree.vdot(last.vector, product)
    product = tree.axpy(-alpha, last.vector, product)
    beta = tree.norm(product)
    return Lanczos(tree.scale(_divide(1.0, beta), product), last.vector, beta), alpha


class Column(NamedTuple):
    """Column k of the upper triangle, top down, and element k of the right-hand side."""

    epsilon: Scalar
    delta: Scalar
    gamma: Scalar
    tau: Scalar


def _reflect_left(left: Left, alpha: Scalar, beta: Scalar, beta_next: Scalar) -> tuple[Column, Left, Scalar]:
    """Column k of T through the last reflections, and a new one against the element below the diagonal."""
    c, s = left.cosine, left.sine
    delta, gamma = c * left.delta + s * alpha, s * left.delta - c * alpha
    epsilon_next, delta_next = s * beta_next, -c * beta_next
    size = jnp.maximum(left.size, jnp.sqrt(beta**2 + alpha**2 + beta_next**2))
    flat = _divide(jnp.hypot(gamma, delta_next), size)
    c, s, gamma = _reflection(gamma, beta_next)
    column = Column(left.epsilon, delta, gamma, c * left.residual)
    return column, Left(c, s, delta_next, epsilon_next, s * left.residual, size), flat


def _reflect_right(
    rows: tuple[Lower, Lower], column: Column
) -> tuple[tuple[Lower, Lower], Lower, tuple[Scalar, Scalar, Scalar, Scalar]]:
    """Take column k's upper elements into columns k-2 and k-1: rows k-2 and k-1 change, row k is made."""
    old, older = rows
    c2, s2, gamma_older = _reflection(older.gamma, column.epsilon)
    theta_old = c2 * old.theta + s2 * column.delta
    delta = s2 * old.theta - c2 * column.delta
    eta, gamma = s2 * column.gamma, -c2 * column.gamma
    c3, s3, gamma_old = _reflection(old.gamma, delta)
    new = Lower(eta, s3 * gamma, -c3 * gamma, column.tau)
    before = older._replace(gamma=gamma_older), old._replace(theta=theta_old, gamma=gamma_old)
    return before, new, (c2, s2, c3, s3)


def _turn(
    columns: tuple[Model, Model], vector: Model, turns: tuple[Scalar, Scalar, Scalar, Scalar]
) -> tuple[tuple[Model, Model], Model]:
    """The same reflections on the columns k-1, k-2 of W and the new Lanczos vector."""
    c2, s2, c3, s3 = turns
    older, last = _mirror(c2, s2, columns[1], vector)
    old, last = _mirror(c3, s3, columns[0], last)
    return (old, older), last


def _mirror(c: Scalar, s: Scalar, left: Model, right: Model) -> tuple[Model, Model]:
    return tree.axpy(c, left, tree.scale(s, right)), tree.axpy(s, left, tree.scale(-c, right))


def _reflection(a: Scalar, b: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """c, s, r with [c s; s -c] (a, b) = (r, 0)."""
    r = jnp.hypot(a, b)
    return jnp.where(r > 0, a / jnp.where(r > 0, r, 1), 1), _divide(b, r), r


def _divide(a: Scalar | float, b: Scalar) -> Scalar:
    """a / b, and 0 where b is."""
    return jnp.where(b != 0, a / jnp.where(b != 0, b, 1), 0)
