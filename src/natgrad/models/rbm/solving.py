"""How the system of a machine's Fisher is solved, whole or in parts, and in which chart it is damped.

Damping is of a chart: damping I + F means something else once statistics are centered. `centering` solves
in the centered chart and gives the direction in the machine's own parameters, so nothing else has to know.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad import tree
from natgrad.core import Model, Operator, Solution, Solver
from natgrad.errors import InputError
from natgrad.models.rbm.machine import from_centered, to_centered
from natgrad.models.rbm.statistic_sum import StatisticSum
from natgrad.models.rbm.unit_blocks import unit_grams, unit_pull, unit_push
from natgrad.solvers.choice import always
from natgrad.solvers.direct import direct, inverse
from natgrad.solvers.minres import minres_qlp
from natgrad.solvers.results import CONVERGED, FAILED
from natgrad.solvers.truncated import conjugate_gradient
from natgrad.solvers.units import known_after, per_layer
from natgrad.solvers.whole import GramFactor, dense_solve, dual_solve

_SIDE = 1024  # of a matrix that is factored at every step
_BLOCK_NUMBERS = 2**26  # 256 MB


class Charted(NamedTuple):
    """A metric in the machine's own chart, its damping, and what a solver made of it in another."""

    operator: Any
    damping: Float[Array, ""]
    inner: Any


def centering(solver: Solver) -> Solver:
    """Solve in the centered chart."""

    def prepare(operator: Any, damping: Array, after: Any) -> tuple[Charted, Any]:
        inner, after = solver.prepare(operator.centered(), damping, after)
        return Charted(operator, damping, inner), after

    def solve(factor: Charted, gradient: Model, guess: Model | None) -> Solution:
        del guess
        offsets = factor.operator.offsets
        factored = isinstance(gradient, StatisticSum)
        turned = gradient.centered(offsets) if factored else to_centered(gradient, offsets)
        found = solver.solve(factor.inner, turned, None)
        return found._replace(value=from_centered(found.value, offsets))

    return Solver(prepare, solve)


def in_sample_space(*, fresh: bool) -> Solver:
    """The dual solve, for gradients that are known as sums over samples: all rows enter one product.

    `fresh` says that a metric serves one step only, whose chains are the first rows of its gradient.
    """
    dual = dual_solve(refine=False)

    def solve(factor: GramFactor, gradient: Model, guess: Model | None) -> Solution:
        if not isinstance(gradient, StatisticSum):
            return dual.solve(factor, gradient, guess)
        operator, damping = factor.operator, factor.damping
        seen = jax.scipy.linalg.lu_solve(factor.lower_upper, operator.push(gradient))
        found = tree.scale(1 / damping, operator.less(gradient, seen, fresh=fresh).whole())
        good = jnp.isfinite(seen @ seen)
        count, result = jnp.zeros((), jnp.int32), jnp.where(good, CONVERGED, FAILED)
        return Solution(found, seen @ seen, count, result, jnp.full_like(damping, jnp.nan))

    return Solver(dual.prepare, solve)


def cheapest(iterations: int, *, fresh: bool) -> Solver:
    """In sample space if there are fewer samples than parameters, whole if small, else by iterations."""

    def choose(operator: Operator) -> tuple[Solver, bool]:
        product = operator.bind()
        size = sum(leaf.size for leaf in jax.tree.leaves(operator.like))
        if product.gram is not None and product.samples < min(size, _SIDE):
            return in_sample_space(fresh=fresh), True
        return dense_solve() if size <= _SIDE else conjugate_gradient(iterations), False

    def solve(factor: Any, gradient: Model, guess: Model | None) -> Solution:
        solver, factored = choose(factor.operator)
        return solver.solve(factor, gradient if factored else tree.whole(gradient), guess)

    return Solver(
        lambda operator, damping, after: choose(operator)[0].prepare(operator, damping, after), solve
    )


def blocks_alone() -> Solver:
    """Only the blocks of hidden units, as matrices or in sample space, and the diagonal of visible biases."""
    stored, in_samples = blocks_stored(), blocks_in_samples()

    def choose(operator: Any) -> Solver:
        visible, hidden = operator.like.sizes
        samples = operator.bind().samples or visible + 1
        if (numbers := hidden * min(samples, visible + 1) ** 2) > _BLOCK_NUMBERS:
            raise InputError(
                f"expected at most {_BLOCK_NUMBERS} numbers for the blocks of hidden units, got {numbers}; "
                "use fewer --chains, --solver diagonal, or auto for the whole Fisher"
            )
        return in_samples if samples <= visible else stored

    def solve(factor: Charted, gradient: Model, guess: Model | None) -> Solution:
        return choose(factor.operator).solve(factor, gradient, guess)

    return Solver(lambda operator, damping, after: choose(operator).prepare(operator, damping, after), solve)


def blocks_stored() -> Solver:
    """The blocks of hidden units as matrices."""
    inner = per_layer(always(direct()))

    def prepare(operator: Any, damping: Array, after: Any) -> tuple[Charted, Any]:
        factor, after = inner.prepare(operator.blocks(), damping, after)
        return Charted(operator, damping, factor), after

    return Solver(prepare, lambda factor, gradient, guess: inner.solve(factor.inner, gradient, guess))


def blocks_in_samples() -> Solver:
    """The blocks of hidden units in sample space, each solved as `dual_solve` solves the whole."""

    def prepare(operator: Any, damping: Array, after: Any) -> tuple[Charted, Any]:
        grams = unit_grams(operator)
        inner = inverse(grams + (damping + after) * jnp.eye(grams.shape[-1], dtype=grams.dtype))
        return Charted(operator, damping, inner), known_after(inner)

    def solve(factor: Charted, gradient: Model, guess: Model | None) -> Solution:
        del guess
        operator, damping = factor.operator, factor.damping
        s = jnp.einsum("jik,jk->ji", factor.inner, unit_push(operator, gradient.hidden))
        hidden = tree.scale(1 / damping, tree.subtract(gradient.hidden, unit_pull(operator, s)))
        variance = operator.visible.var(axis=1)
        below = gradient.visible_bias / (damping + variance)
        length = jnp.vdot(s, s) + jnp.vdot(below, variance * below)  # R_j x_j = s_j
        return _direct_solution(gradient.with_arrays(hidden.weight, hidden.bias, below), length)

    return Solver(prepare, solve)


def diagonal_alone() -> Solver:
    """Only the diagonal."""

    def prepare(operator: Any, damping: Array, after: Any) -> tuple[Charted, Any]:
        return Charted(operator, damping, operator.diagonal()), after

    def solve(factor: Charted, gradient: Model, guess: Model | None) -> Solution:
        del guess
        value = jax.tree.map(lambda g, d: g / (factor.damping + d), gradient, factor.inner)
        length = tree.vdot(value, jax.tree.map(jnp.multiply, factor.inner, value))
        return _direct_solution(value, length)

    return Solver(prepare, solve)


def _direct_solution(value: Model, curvature: Array) -> Solution:
    """A solution without iterations, whose residual nobody looked at."""
    done, unknown = jnp.zeros((), jnp.int32), jnp.full_like(curvature, jnp.nan)
    return Solution(value, curvature, done, jnp.asarray(CONVERGED), unknown)


WHOLE_SOLVERS: dict[str, Callable[[Any], Solver]] = {
    "auto": lambda chosen: cheapest(chosen.iterations, fresh=chosen.refresh == 1),
    "dual": lambda chosen: dual_solve(),
    "direct": lambda chosen: dense_solve(),
    "cg": lambda chosen: conjugate_gradient(chosen.iterations),
    "minres": lambda chosen: minres_qlp(chosen.iterations),
    "blocks": lambda chosen: blocks_alone(),
    "diagonal": lambda chosen: diagonal_alone(),
}
"""The solvers of a section of settings by name."""
TAKES_SUMS = {"auto"}
"""Those that understand a gradient as a sum over samples."""
