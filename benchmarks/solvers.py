"""How fast this machine is at what exact solvers do: the speeds of `natgrad.solvers.cost`, in 1e9 operations.

    taskset -c 0 python -m benchmarks.solvers --json > benchmarks/results/solvers.json

A tanh network of 20 inputs, 64 units and one output on 2,000 rows for passes; matrices of 2,000 x 500 for the
rest. The best of several repetitions: what the machine can do when nothing disturbs it.
"""

import argparse
import json
import time

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.layers.outputs import linear
from natgrad.layers.task import Examples, Task, TaskBatch
from natgrad.metrics.curvature import fisher

ROWS, SIDE, REPETITIONS = 2000, 500, 15


def network(p, x):
    return jnp.tanh(x @ p["in"] + p["bias"]) @ p["out"]


def best(function, *arguments) -> float:
    """Seconds of the fastest repetition."""
    compiled = jax.jit(function)
    jax.block_until_ready(compiled(*arguments))
    times = []
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        times.append(time.perf_counter() - began)
    return min(times)


def speed_of_passes(kind: np.dtype) -> float:
    """Four passes of a product F v, two operations for a row and a parameter each."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape).astype(kind))  # noqa: E731
    parameters = {"in": draw(20, 64), "bias": draw(64), "out": draw(64, 1)}
    metric, x = fisher()(Task(network, linear())), draw(ROWS, 20)

    def product(p, x):
        operator, _ = metric.measure(jax.random.key(0), (), p, TaskBatch(Examples(x)))
        return operator.bind().mv(p)

    size = sum(leaf.size for leaf in parameters.values())
    return 8e-9 * ROWS * size / best(product, parameters, x)


def speeds(kind: np.dtype) -> dict[str, float]:
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(ROWS, SIDE)).astype(kind))
    square = rows.T @ rows
    product, cube = 2e-9 * ROWS * SIDE**2, 1e-9 * SIDE**3
    return {
        "passes": speed_of_passes(kind),
        "products": product / best(lambda r: r.T @ r, rows),
        "qr": product / best(lambda r: jnp.linalg.qr(r, mode="r"), rows),
        "cholesky": cube / 3 / best(jax.scipy.linalg.cholesky, square),
        "elimination": 2 * cube / 3 / best(lambda m: jax.scipy.linalg.lu_factor(m)[0], square),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    found = {kind.__name__: speeds(kind) for kind in (np.float32, np.float64)}
    rounded = {kind: {key: round(value, 1) for key, value in own.items()} for kind, own in found.items()}
    row = {"backend": jax.default_backend(), "jax": jax.__version__, "speeds": rounded}
    print(json.dumps(row) if given.json else "\n".join(f"{kind:8} {own}" for kind, own in rounded.items()))


if __name__ == "__main__":
    main()
