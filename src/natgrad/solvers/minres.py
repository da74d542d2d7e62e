"""MINRES-QLP: the solution of minimum length of a symmetric system, singular or not [choi2011].

Lanczos makes the operator tridiagonal, T = V^T A V. Reflections from the left make it upper triangular
(that is MINRES), reflections from the right lower triangular, L: the solution x = W u with L u = t is
then built from orthonormal columns W, so that it cannot grow along the null space. Where the system
has no solution, the least-squares solution of minimum length is found [choi2011 sec. 3]; conjugate
gradients would diverge there.

In floating point the small diagonal elements of L never become zero. The iteration therefore stops, without
the last column of W, as soon as |A r| is too small, or the condition of L or the length of x too large
[choi2011]. To continue would lose the orthogonality of the Lanczos vectors and let x grow without limit.
What is returned is checked against the true residual. One product per iteration, one for the residual at
the end, and one more to check a least-squares solution.
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
_ROUNDING = 100  # the true residual may exceed the tolerance by this many roundings of |A| |x| + |b|
_LONG = 10  # times the length that L's diagonal allows, which overestimates the smallest singular value


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


class Limits(NamedTuple):
    """When to stop: the residual that is small enough, the part of |A| that counts as zero, and |b|."""

    residual: Scalar
    singular: Scalar
    right: Scalar


class MinresState(NamedTuple):
    """At iteration k: rows k-1 and k-2 of L, the columns of W that may still change, u_{k-3}, u_{k-4}.

    `settled` is the solution from all columns before k-2, `length` its norm; `value` the whole.
    """

    iteration: Int[Array, ""]
    lanczos: Lanczos
    left: Left
    rows: tuple[Lower, Lower]
    columns: tuple[Model, Model]
    known: tuple[Scalar, Scalar]
    settled: Model
    length: Scalar
    value: Model
    result: Int[Array, ""]


def minres_qlp(iterations: int = 50, *, tolerance: float = 1e-4, singular: float | None = None) -> Solver:
    """Minimum-length solutions of singular, indefinite or ill-conditioned symmetric systems.

    Where the iterations run out first, the iterate of MINRES is returned, whose residual is the smallest so
    far; of a system without a solution it is longer than the least-squares solution.

    Args:
        iterations: the most that are made.
        tolerance: stop when the residual is that small a part of the right-hand side.
        singular: the part of |A| that counts as zero; eps^(2/3) by default. The iteration stops, and says so,
            when |A r| / |r| or the smallest diagonal element of L is below it, or |b| / |x| ten times below.
            Damping below it may be taken for zero: in float32, below 2.4e-5 |A|.
    """
    if iterations < 1:
        raise InputError(f"MINRES-QLP needs at least one iteration, got {iterations}")

    def iterate(system: System, gradient: Model, guess: Model | None) -> Found:
        right = gradient if guess is None else tree.subtract(gradient, system.mv(guess))
        length = tree.norm(right)
        limit = jnp.finfo(length.dtype).eps ** (2 / 3) if singular is None else singular
        limits = Limits(tolerance * tree.norm(gradient), jnp.asarray(limit, length.dtype), length)

        def more(carry: MinresState) -> Bool[Array, ""]:
            return (carry.result == LIMIT) & (carry.iteration < iterations)

        found = jax.lax.while_loop(more, lambda carry: _advance(system, carry, limits), _start(right, length))
        value = found.value if guess is None else tree.add(guess, found.value)
        residual = tree.subtract(gradient, system.mv(value))
        good = _check(system, found, value, residual, limits)
        return Found(value, residual, found.iteration, jnp.where(good, found.result, FAILED))

    return iterative(iterate)


def _check(
    system: System, found: MinresState, value: Model, residual: Model, limits: Limits
) -> Bool[Array, ""]:
    """Whether the solution is what its code says; every comparison is false for nan.

    Converged: the residual is small, up to rounding. Singular: A r is small, and x has no share of r, which
    then is a null vector. Otherwise: the residual is not larger than that of the guess. Always: x is bounded.
    """
    size, left, length = found.left.size, tree.norm(residual), tree.norm(found.value)
    rounding = _ROUNDING * jnp.finfo(left.dtype).eps * (size * tree.norm(value) + limits.right)
    small = left <= 10 * limits.residual + rounding
    apply = lambda: tree.norm(system.mv(residual))  # noqa: E731
    product = jax.lax.cond(found.result == SINGULAR, apply, lambda: jnp.zeros_like(left))
    loose = 10 * jnp.sqrt(limits.singular)
    flat = product <= loose * size * left
    shortest = jnp.abs(tree.vdot(found.value, residual)) <= loose * length * left
    bounded = limits.singular * size * length <= _LONG * limits.right
    codes = [found.result == CONVERGED, found.result == SINGULAR]
    return bounded & jnp.select(codes, [small, small | (flat & shortest)], left <= limits.right + rounding)


def _start(right: Model, length: Scalar) -> MinresState:
    zero, nothing = jnp.zeros_like(length), tree.zeros(right)
    row = Lower(zero, zero, zero, zero)
    return MinresState(
        iteration=jnp.zeros((), jnp.int32),
        lanczos=Lanczos(tree.scale(_divide(1.0, length), right), nothing, zero),
        left=Left(zero - 1, zero, zero, zero, length, zero),
        rows=(row, row),
        columns=(nothing, nothing),
        known=(zero, zero),
        settled=nothing,
        length=zero,
        value=nothing,
        result=jnp.where(length > 0, LIMIT, CONVERGED),
    )


def _advance(system: System, carry: MinresState, limits: Limits) -> MinresState:
    v = carry.lanczos.vector
    lanczos, alpha = _lanczos(system, carry.lanczos)
    column, left, flat = _reflect_left(carry.left, alpha, carry.lanczos.beta, lanczos.beta)
    (older, old), new, turns = _reflect_right(carry.rows, column)
    columns, last = _turn(carry.columns, v, turns)
    u_before = carry.known
    first = _divide(older.tau - older.eta * u_before[1] - older.theta * u_before[0], older.gamma)
    second = _divide(old.tau - old.eta * u_before[0] - old.theta * first, old.gamma)
    third = _divide(new.tau - new.eta * first - new.theta * second, new.gamma)
    length = jnp.hypot(carry.length, first)
    zero = limits.singular * left.size
    is_singular = (
        (flat <= limits.singular)  # |A r_{k-1}| / (|A| |r_{k-1}|): x_{k-1} solves the least-squares problem
        | (jnp.abs(new.gamma) <= zero)  # the last is the smallest element of L's diagonal
        | (zero * jnp.hypot(jnp.hypot(length, second), third) > _LONG * limits.right)
    )
    third = jnp.where(is_singular, 0, third)
    settled = tree.axpy(first, columns[1], carry.settled)
    solved = (left.residual <= limits.residual) & ~is_singular
    return MinresState(
        iteration=carry.iteration + 1,
        lanczos=lanczos,
        left=left,
        rows=(new, old),
        columns=(last, columns[0]),
        known=(first, u_before[0]),
        settled=settled,
        length=length,
        value=tree.axpy(third, last, tree.axpy(second, columns[0], settled)),
        result=jnp.where(is_singular, SINGULAR, jnp.where(solved, CONVERGED, LIMIT)),
    )


def _lanczos(system: System, last: Lanczos) -> tuple[Lanczos, Scalar]:
    product = tree.axpy(-last.beta, last.before, system.mv(last.vector))
    alpha = tree.vdot(last.vector, product)
    product = tree.axpy(-alpha, last.vector, product)
    beta = tree.norm(product)
    return Lanczos(tree.scale(_divide(1.0, beta), product), last.vector, beta), alpha


class TriangleColumn(NamedTuple):
    """Column k of the upper triangle, top down, and element k of the right-hand side."""

    epsilon: Scalar
    delta: Scalar
    gamma: Scalar
    tau: Scalar


def _reflect_left(
    left: Left, alpha: Scalar, beta: Scalar, beta_next: Scalar
) -> tuple[TriangleColumn, Left, Scalar]:
    """Column k of T through the last reflections, and a new one against the element below the diagonal."""
    c, s = left.cosine, left.sine
    delta, gamma = c * left.delta + s * alpha, s * left.delta - c * alpha
    epsilon_next, delta_next = s * beta_next, -c * beta_next
    size = jnp.maximum(left.size, jnp.sqrt(beta**2 + alpha**2 + beta_next**2))
    flat = _divide(jnp.hypot(gamma, delta_next), size)
    c, s, gamma = _reflection(gamma, beta_next)
    column = TriangleColumn(left.epsilon, delta, gamma, c * left.residual)
    return column, Left(c, s, delta_next, epsilon_next, s * left.residual, size), flat


def _reflect_right(
    rows: tuple[Lower, Lower], column: TriangleColumn
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
