"""How exact a natural direction is: by iterations for a fresh Fisher, by directions for a kept one.

    NATGRAD_DATA=... python -m benchmarks.accuracy --arch mini|mnist [--json]

Errors of the whole direction against solves in float64, unit by unit. A kept Fisher is taken from a
machine after 500 steps of RWS; its error is that on its own rows, and on those of 1,000 natural steps later.
"""

import argparse
import json

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import run_benchmark
from benchmarks.step import ARCHITECTURES, METHODS, advance, one_step, sessions, systems
from natgrad.data import batches
from natgrad.data import load as load_data
from natgrad.metrics.blocks import join
from natgrad.solvers.shared import shared
from natgrad.solvers.unit_cg import unit_conjugate_gradient
from natgrad.solvers.units import LayerSystem

ITERATIONS, DIRECTIONS = (1, 2, 3, 4, 5, 6), (8, 16, 32, 64)


def exact(blocks, gradient, damping: float) -> np.ndarray:
    """(a I + F_j)^{-1} g_j of every unit in float64, in sample space."""
    rows = np.vstack([np.asarray(blocks.inputs, np.float64), np.ones(blocks.inputs.shape[1])])
    curvature, right = np.asarray(blocks.curvature, np.float64), np.asarray(join(gradient), np.float64)
    system = damping * np.eye(rows.shape[1]) + (rows.T @ rows) * curvature[:, None, :]
    inner = np.linalg.solve(system, (right @ rows)[..., None])[..., 0]
    return (right - (curvature * inner) @ rows.T) / damping


def layers(info) -> list[tuple]:
    """Blocks and gradient of every layer of both networks."""
    return [(blocks, gradient) for blocks, gradient, _ in systems(info)]


def error(solver, kept, present, damping: float) -> float:
    """The relative error of a solver that saw the kept metric, for the present gradient and metric."""

    def prepared(blocks, gradient):  # one after the other: LAPACK calls side by side can wait forever
        strength = jnp.full_like(gradient.bias, damping)
        factor = jax.block_until_ready(jax.jit(solver.prepare)(blocks, strength))
        return LayerSystem(blocks, strength, factor)

    gradients = [gradient for _, gradient in present]
    given = [prepared(blocks, gradient) for (blocks, _), gradient in zip(kept, gradients, strict=True)]
    solve = jax.jit(lambda *both: [solution.value for solution in solver.solve(*both)])
    found = solve(given, gradients)
    wrong = total = 0.0
    for (blocks, gradient), layer in zip(present, found, strict=True):
        expected = exact(blocks, gradient, damping)
        wrong += np.sum((np.asarray(join(layer), np.float64) - expected) ** 2)
        total += np.sum(expected**2)
    return float(np.sqrt(wrong / total))


def measure(arch: str) -> dict:
    data, sizes = ARCHITECTURES[arch]
    dataset = load_data(data)
    found, _ = sessions(data, sizes, dataset, {name: METHODS[name] for name in ("rws", "nrws_fresh")})
    order = batches.permutation(found["rws"][0].key_order, 0, len(dataset.train))
    advance(found["rws"], order, 0, 500)
    session = found["nrws_fresh"][0]
    session.state = session.state._replace(model=found["rws"][0].state.model)
    early = layers(one_step(session, session.state.model, order))
    advance(found["nrws_fresh"], order, 500, 1500)
    late = layers(one_step(session, session.state.model, order))
    damping = session.settings.metric.damping
    fresh = lambda at: {n: error(unit_conjugate_gradient(n), at, at, damping) for n in ITERATIONS}  # noqa: E731
    kept = lambda now: {n: error(shared(n), early, now, damping) for n in DIRECTIONS}  # noqa: E731
    return {
        "arch": arch,
        "iterations_after_rws": fresh(early),
        "iterations_later": fresh(late),
        "directions_own": kept(early),
        "directions_stale": kept(late),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", choices=ARCHITECTURES, default="mini")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    row = measure(arguments.arch)
    print(
        json.dumps(row) if arguments.json else "\n".join(f"{name:22} {value}" for name, value in row.items())
    )


if __name__ == "__main__":
    run_benchmark(main)
