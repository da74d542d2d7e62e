"""What a truncated natural step of a network costs, against the products it is made of, in one process.

    python -m benchmarks.network [--json] [--rows 256] [--sizes 784,500,10] [--iterations 20]

The step: value and gradient, metric, exactly 20 conjugate gradients (no early stop), update; compiled
once. The yardstick: 20 separate passes of one compiled product, forward and reverse mode from scratch, as
someone without this library would call them. Both on the same rows, interleaved, medians over rounds.
"""

import argparse
import json
import statistics
import time

import jax
import jax.numpy as jnp

from natgrad.layers import outputs, perceptron
from natgrad.layers.task import Examples, Task, TaskBatch
from natgrad.metrics.curvature import fisher
from natgrad.models.network import presets
from natgrad.solvers.truncated import conjugate_gradient
from natgrad.updates.lengths import learning_rate
from natgrad.updates.natural import Options


def problem(sizes: tuple[int, ...], rows: int):
    keys = jax.random.split(jax.random.key(0), 3)
    layers = perceptron.fresh_perceptron(keys[0], sizes)
    x = jax.random.uniform(keys[1], (rows, sizes[0]))
    return layers, Examples(x, jax.random.randint(keys[2], (rows,), 0, sizes[-1]))


def measure(sizes: tuple[int, ...], rows: int, iterations: int, rounds: int) -> dict:
    task = Task(perceptron.perceptron(), outputs.softmax())
    layers, data = problem(sizes, rows)
    never = lambda progress: jnp.asarray(False)  # noqa: E731
    solver, options = conjugate_gradient(iterations, stop=never), Options(length=learning_rate(1.0))
    method = presets.truncated(task, fisher(), solver, options)
    key, batch = jax.random.key(1), TaskBatch(data)
    state = method.init(key, layers, batch)
    step = jax.jit(method.step)

    @jax.jit
    def product(p, v, x):
        value, change = jax.jvp(lambda p: task.network(p, x), (p,), (v,))
        _, pull = jax.vjp(lambda p: task.network(p, x), p)
        return pull(task.output.fisher(value, change) / x.shape[0])[0]

    def steps() -> None:
        jax.block_until_ready(step(key, state, batch))

    def products() -> None:
        v = layers
        for _ in range(iterations):
            v = product(layers, v, data.inputs)
        jax.block_until_ready(v)

    began = time.process_time()
    steps()
    compiling = time.process_time() - began
    products()
    times: dict[str, list[tuple[float, float]]] = {"step": [], "products": []}
    for _ in range(rounds):
        for name, action in (("step", steps), ("products", products)):
            wall, cpu = time.perf_counter(), time.process_time()
            action()
            times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return (
        summary(times)
        | {
            "compilations": step._cache_size(),
            "first_call_cpu_seconds": compiling,
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(layers)),
            "rows": rows,
            "iterations": iterations,
            "rounds": rounds,
        }
        | memory(task, layers, data)
    )


def summary(times: dict) -> dict:
    found = {}
    for index, kind in enumerate(("", "_cpu")):
        for name, pairs in times.items():
            found[f"{name}{kind}_ms"] = 1e3 * statistics.median(pair[index] for pair in pairs)
        ratios = [a[index] / b[index] for a, b in zip(times["step"], times["products"], strict=True)]
        found[f"step_over_products{kind}"] = statistics.median(ratios)
    return found


def memory(task: Task, layers: perceptron.Perceptron, data: Examples) -> dict:
    """Temporary memory of one product with 64 rows at once, in units of the parameters."""
    metric = fisher(rows_at_once=64)(task)

    def one(parameters, vector, inputs):
        found, _ = metric.measure(jax.random.key(0), (), parameters, TaskBatch(Examples(inputs)))
        return found.bind().mv(vector)

    compiled = jax.jit(one).lower(layers, layers, data.inputs).compile()
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(layers))
    return {"product_memory_over_parameters": compiled.memory_analysis().temp_size_in_bytes / size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="784,500,10")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sizes = tuple(int(size) for size in given.sizes.split(","))
    row = measure(sizes, given.rows, given.iterations, given.rounds)
    row = {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}
    print(json.dumps(row) if given.json else "\n".join(f"{name:32} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
