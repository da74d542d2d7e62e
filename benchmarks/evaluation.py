"""What an importance-sampled likelihood costs over its own matrix products.

    NATGRAD_DATA=... python -m benchmarks.evaluation [--arch mini|mnist|three] [--memory-mb 64] [--json]

500 test rows, 10,000 samples each, in one process, interleaved. The floor is recognition and
generation forward on the same portions of rows and samples, and nothing else.
"""

import argparse
import json
import statistics

import jax
import jax.numpy as jnp

from benchmarks import run_benchmark
from benchmarks.step import ARCHITECTURES, timed
from natgrad import config
from natgrad.data import load as load_data
from natgrad.layers import generator
from natgrad.models.helmholtz import kind
from natgrad.models.helmholtz import likelihood as importance
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.models.registry import Shape
from natgrad.training.compile import WIDE


def products(model: Helmholtz, visible, samples: int, chunk: int):
    """The matrix products of an estimate, `chunk` samples at a time, each turn depending on the last."""

    def body(turn, visible):
        del turn
        below = [visible, jnp.tile(model.recognition[0].weight @ visible, (1, chunk))]
        for layer in model.recognition[1:]:
            below.append(layer.weight @ below[-1])
        down = [layer.weight @ value for layer, value in zip(model.generation, below[1:], strict=True)]
        spill = sum(value.ravel()[0] for value in down)
        return visible + 1e-30 * spill

    return jax.lax.fori_loop(0, -(-samples // chunk), body, visible)


def measure(arch: str, samples: int, rows: int, rounds: int, memory_mb: float) -> dict:
    data, layers = ARCHITECTURES[arch]
    settings = config.resolve({"data": data, "layers": layers, "method": "rws", "epochs": 1})
    dataset = load_data(data)
    model = kind.fresh(jax.random.key(0), settings, Shape.of(settings, dataset))
    visible = model.coding.value(jnp.asarray(dataset.test[:rows].T > 0, jnp.float32))
    portion, chunk = importance._portions(model, rows, samples, memory_mb)
    floor = jax.jit(products, static_argnames=("samples", "chunk"), compiler_options=WIDE)

    def bare() -> None:
        for start in range(0, rows, portion):
            part = visible[:, start : start + portion]
            jax.block_until_ready(floor(model, part, samples=samples, chunk=chunk))

    def whole() -> None:
        importance.log_likelihood(generator.key(1), model, visible, samples=samples, memory_mb=memory_mb)

    times: dict[str, list[tuple[float, float]]] = {"floor": [], "whole": []}
    for turn in range(rounds + 1):
        for name, action in (("floor", bare), ("whole", whole)):
            found = timed(action, 1)
            if turn:  # the first round compiles
                times[name].append(found)
    wall, cpu = (
        {name: statistics.median(pair[kind] for pair in pairs) for name, pairs in times.items()}
        for kind in (0, 1)
    )
    return {
        "arch": arch,
        "rows": rows,
        "samples": samples,
        "memory_mb": memory_mb,
        "floor_ms": wall["floor"],
        "evaluation_ms": wall["whole"],
        "evaluation_over_floor": wall["whole"] / wall["floor"],
        "evaluation_over_floor_cpu": cpu["whole"] / cpu["floor"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", choices=sorted(ARCHITECTURES), default="mnist")
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-mb", type=float, default=64.0)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    arguments = parser.parse_args()
    found = measure(arguments.arch, arguments.samples, arguments.rows, arguments.rounds, arguments.memory_mb)
    if arguments.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{key:28} {value}" for key, value in found.items()))


if __name__ == "__main__":
    run_benchmark(main)
