"""Does a Nystrom sketch pay for itself? How many iterations a solve takes, with sketches and without.

    python -m benchmarks.sketches --json > benchmarks/results/sketches.json

Conjugate gradients alone (rank 0) and with sketches, in float64, for the Gauss-Newton matrix of Poisson's
equation in five dimensions with 10,065 parameters, after two hundred steps of Adam. Iterations until a share
of the gradient is left; null: not within three hundred. A sketch costs a product for each of its vectors,
once for a metric; an iteration costs one. Dampings are multiples of the metric's mean diagonal.
"""

import argparse
import functools
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks import equations, run_benchmark
from natgrad.metrics.first_look import squares_by_rows
from natgrad.metrics.residuals import residual_metric
from natgrad.solvers.nystrom import nystrom_gradient
from natgrad.solvers.results import CONVERGED
from natgrad.solvers.truncated import conjugate_gradient

STEPS, RATE, MOST = 200, 1e-3, 300
RANKS = (0, 20, 50, 100)
SHARES = (1e-2, 1e-4, 1e-8)
DAMPINGS = (1e-3, 1e-6)
System = tuple[Any, Any]  # an operator, and the gradient


def trained(loss: Callable[[Any], Any], start: Any) -> Any:
    """After some steps of Adam, where curvature is no longer that of the start."""
    optimizer = optax.adam(RATE)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        p, state = carry
        updates, state = optimizer.update(jax.grad(loss)(p), state, p)
        return (optax.apply_updates(p, updates), state), None

    return jax.jit(lambda p: jax.lax.scan(step, (p, optimizer.init(p)), None, STEPS)[0][0])(start)


def gauss_newton() -> System:
    """The matrix of 600 points inside and 100 on the border, and the gradient."""
    equation = equations.EQUATIONS["poisson5-deep"]._replace(points=(600, 100))
    batch, residuals = equations.batch_of(equation, 0), equations.residuals_of(equation)
    loss = functools.partial(equations.loss_of(equation), batch=batch)
    p = trained(loss, equations.fresh(equation, 0))
    metric = residual_metric(squares_by_rows(residuals, 1.0, True)(p, batch))
    operator, _ = metric.measure(jax.random.key(0), (), p, batch)
    return operator, jax.jit(jax.grad(loss))(p)


def iterations_of(rank: int) -> Callable[..., int | None]:
    """From a system, a damping and the share that may be left, to the number of iterations."""

    @jax.jit
    def solve(system: System, damping: Any, share: Any) -> Any:
        operator, gradient = system
        stop = lambda progress: progress.residual <= share * progress.right  # noqa: E731
        solver = nystrom_gradient(rank, MOST, stop=stop) if rank else conjugate_gradient(MOST, stop=stop)
        strength = damping * operator.mean_diagonal(jax.random.key(1))
        factor, _ = solver.prepare(operator, strength, jnp.zeros_like(strength))
        found = solver.solve(factor, gradient, None)
        return jnp.where(found.result == CONVERGED, found.iterations, -1)

    def made(*given: Any) -> int | None:
        found = int(solve(*given))
        return None if found < 0 else found

    return made


def rows_of(system: System) -> list[dict[str, Any]]:
    found = []
    for rank in RANKS:
        iterations = iterations_of(rank)
        for damping in DAMPINGS:
            row = {"damping": damping, "rank": rank}
            found.append(row | {f"to_{share:g}": iterations(system, damping, share) for share in SHARES})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    as_json = parser.parse_args().json
    jax.config.update("jax_enable_x64", True)
    found = rows_of(gauss_newton())
    print(json.dumps(found) if as_json else "\n".join(map(str, found)))


if __name__ == "__main__":
    run_benchmark(main)
