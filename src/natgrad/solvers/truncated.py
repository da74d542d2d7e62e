"""Conjugate gradients stopped early: the heart of Hessian-Free and of truncated Newton methods.

Every iteration lowers the quadratic model

    phi(x) = (1/2) x^T A x - g^T x,     A = damping I + F,

which costs nothing to follow. Martens stops when it hardly falls any more [martens2010]:
at iteration i, if i > k, phi(x_i) < 0 and (phi(x_i) - phi(x_{i-k})) / phi(x_i) < k epsilon, with
k = max(10, i / 10). Some of the iterates, at geometrically growing i, can be kept, since an earlier
one is often the better step [martens2010].

Two public implementations do not offer what these methods need. `jax.scipy.sparse.linalg.cg` stops by the
residual only (`tol`, `atol`, `maxiter`), returns the solution and None, and continues through negative
curvature. `lineax.CG` stops when residual and last change are small (`rtol`, `atol`, `max_steps`) and returns
the number of steps and a result; it takes operators tagged as definite and has no result for negative
curvature. Here the stopping rule is an argument that sees phi, iterates can be kept, negative curvature ends
the iteration before it and is reported, and the residual, from which phi of the step follows, is returned.
Without a guess the start takes no product.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natgrad import tree
from natgrad.core import Model, Solver
from natgrad.errors import InputError
from natgrad.solvers.results import CONVERGED, FAILED, INDEFINITE, LIMIT
from natgrad.solvers.whole import Found, System, iterative


class SolveProgress(NamedTuple):
    """What a stopping rule may look at: the iteration, phi of all iterates so far, two norms."""

    iteration: Int[Array, ""]
    values: Float[Array, " iterates"]
    residual: Float[Array, ""]
    right: Float[Array, ""]


_Stop = Callable[[SolveProgress], Bool[Array, ""]]


def small_residual(tolerance: float = 1e-4) -> _Stop:
    """Stop when the residual is that small a part of the right-hand side [revisiting alg. 1]."""
    return lambda progress: progress.residual <= tolerance * progress.right


def little_progress(epsilon: float = 5e-4) -> _Stop:
    """Martens' rule: phi falls by less than epsilon of itself an iteration [martens2010]."""

    def stop(progress: SolveProgress) -> Bool[Array, ""]:
        i, values = progress.iteration, progress.values
        k = jnp.maximum(10, i // 10)
        now, before = values[i], values[jnp.maximum(i - k, 0)]
        share = (now - before) / jnp.where(now < 0, now, 1)
        return (i > k) & (now < 0) & (share < epsilon * k.astype(values.dtype))

    return stop


class ConjugateState(NamedTuple):
    """An iteration's state; `power` is residual^T M residual, M the preconditioner."""

    iteration: Int[Array, ""]
    value: Model
    residual: Model
    direction: Model
    power: Float[Array, ""]
    values: Float[Array, " iterates"]
    result: Int[Array, ""]
    iterates: Any


def conjugate_gradient(
    iterations: int = 20,
    *,
    stop: _Stop | None = None,
    keep: float | None = None,
    precondition: float | None = None,
) -> Solver:
    """Preconditioned conjugate gradients from a guess (zero by default), one product per iteration.

    Args:
        iterations: the most that are made.
        stop: the stopping rule; `small_residual()` by default.
        keep: also keep the iterates at ceil(keep^j), j = 0, 1, ..., for back-tracking (Martens: 1.3).
        precondition: divide by (diagonal + damping)^precondition (Martens: 0.75); the metric must have one.
    """
    iterate = conjugate_iteration(iterations, stop, keep)
    return iterative(lambda system, *given: iterate(system, _corrector(system, precondition), *given))


Corrector = Callable[[Model], Model] | None


def conjugate_iteration(
    iterations: int, stop: _Stop | None = None, keep: float | None = None
) -> Callable[[System, Corrector, Model, Model | None], Found]:
    """The iteration itself, for any preconditioner: what a residual is multiplied by."""
    if iterations < 1:
        raise InputError(f"conjugate gradients need at least one iteration, got {iterations}")
    rule = small_residual() if stop is None else stop
    slots = None if keep is None else _slots(iterations, keep)

    def iterate(system: System, correct: Corrector, gradient: Model, guess: Model | None) -> Found:
        right = tree.norm(gradient)
        start = _start(system, gradient, guess, correct, _Room(iterations, slots))

        def more(carry: ConjugateState) -> Bool[Array, ""]:
            return (carry.result == LIMIT) & (carry.iteration < iterations)

        def body(carry: ConjugateState) -> ConjugateState:
            stopped = lambda progress: rule(progress._replace(right=right))  # noqa: E731
            return _advance(system, carry, correct, stopped, slots)

        found = jax.lax.while_loop(more, body, start)
        finite = jnp.isfinite(tree.vdot(found.value, found.value))
        kept = (
            0 if slots is None else jnp.where(found.iteration > 0, jnp.asarray(slots)[found.iteration] + 1, 0)
        )
        result = jnp.where(finite, found.result, FAILED)
        return Found(found.value, found.residual, found.iteration, result, found.iterates, kept)

    return iterate


def _corrector(system: System, exponent: float | None) -> Corrector:
    """Division by (diagonal + damping)^exponent [martens2010], or nothing."""
    if exponent is None:
        return None
    if system.product.diagonal is None:
        raise InputError(
            "a preconditioner needs a metric with a diagonal, and this one has none; leave it out"
        )
    found = system.product.diagonal()
    inverse = jax.tree.map(lambda leaf: (leaf + system.damping) ** -exponent, found)
    return lambda v: jax.tree.map(jnp.multiply, inverse, v)


class _Room(NamedTuple):
    """The most iterations, and where iterates are kept."""

    iterations: int
    slots: list[int] | None


def _start(
    system: System, gradient: Model, guess: Model | None, correct: Corrector, room: _Room
) -> ConjugateState:
    iterations, slots = room
    residual = gradient if guess is None else tree.subtract(gradient, system.mv(guess))
    value = tree.zeros(gradient) if guess is None else guess
    direction = residual if correct is None else correct(residual)
    power = tree.vdot(residual, direction)
    first = -0.5 * (tree.vdot(value, gradient) + tree.vdot(value, residual))
    values = jnp.zeros((iterations + 1,), power.dtype).at[0].set(first)
    done = jnp.where(power > 0, LIMIT, jnp.where(power == 0, CONVERGED, FAILED))
    iterates = None
    if slots is not None:
        iterates = jax.tree.map(lambda leaf: jnp.zeros((slots[-1] + 1, *leaf.shape), leaf.dtype), gradient)
    return ConjugateState(jnp.zeros((), jnp.int32), value, residual, direction, power, values, done, iterates)


def _advance(
    system: System, carry: ConjugateState, correct: Corrector, stop: _Stop, slots: list[int] | None
) -> ConjugateState:
    """One iteration; along a direction without positive curvature nothing moves."""
    product = system.mv(carry.direction)
    energy = tree.vdot(carry.direction, product)
    curved = energy > 0
    length = jnp.where(curved, carry.power / jnp.where(curved, energy, 1), 0)
    value = tree.axpy(length, carry.direction, carry.value)
    residual = tree.axpy(-length, product, carry.residual)
    corrected = residual if correct is None else correct(residual)
    power = tree.vdot(residual, corrected)
    direction = tree.axpy(power / carry.power, carry.direction, corrected)
    iteration = carry.iteration + curved.astype(jnp.int32)
    fallen = carry.values[carry.iteration] - 0.5 * length * carry.power
    values = carry.values.at[iteration].set(fallen)
    size = power if correct is None else tree.vdot(residual, residual)
    done = stop(SolveProgress(iteration, values, jnp.sqrt(size), jnp.zeros_like(size))) | (power == 0)
    result = jnp.where(curved & ~(power < 0), jnp.where(done, CONVERGED, LIMIT), INDEFINITE)
    iterates = carry.iterates
    if slots is not None:
        put = lambda stack, leaf: stack.at[jnp.asarray(slots)[iteration]].set(leaf)  # noqa: E731
        iterates = jax.tree.map(put, iterates, value)
    return ConjugateState(iteration, value, residual, direction, power, values, result, iterates)


def _slots(iterations: int, keep: float) -> list[int]:
    """The slot of every iterate: that of the next place ceil(keep^j), so that the last is always kept."""
    if not keep > 1:
        raise InputError(f"iterates are kept at growing powers of a number above one, got {keep}")
    places = sorted(
        {min(math.ceil(keep**j), iterations) for j in range(1 + math.ceil(math.log(iterations, keep)))}
    )
    return [next(slot for slot, place in enumerate(places) if place >= i) for i in range(iterations + 1)]
