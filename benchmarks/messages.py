"""What a message between two processes costs, whatever its bytes: an all-reduce of one array, and of many.

    python -m benchmarks.messages [--json]

Two processes meet at 127.0.0.1 and sum arrays, again and again: on a core each, and both on two cores. It
shows why a step on a mesh sends few arrays. What takes the time is Gloo, by which processes of JAX talk where
they compute on processors (docs/scale.md).
"""

import argparse
import json
import os
import time

from benchmarks import run_benchmark
from benchmarks.scale import free_address, on_cores

PARAMETERS = 664_624  # of the machine of benchmarks.scale
CASES = {"one number": (1, 1), "256 numbers": (1, 256), "a gradient": (1, PARAMETERS)} | {
    "a gradient in 100 arrays": (100, PARAMETERS // 100)
}
TURNS, TIMES = 20, 3


def worker(process: int, address: str) -> None:
    """One of two processes: the seconds of every case, the best of some times."""
    import jax

    from natgrad.training import hosts

    hosts.connect(hosts.Hosts(address, 2, process, 60))
    with jax.set_mesh(jax.make_mesh((2,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))):
        found = {name: _seconds(arrays, numbers) for name, (arrays, numbers) in CASES.items()}
    print(json.dumps(found), flush=True)


def _seconds(arrays: int, numbers: int) -> float:
    """Of one turn, in which so many arrays of so many numbers are summed over the processes."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec

    def turn(_: jax.Array, values: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return tuple(jax.lax.pmean(value, "rows") for value in values)

    many = jax.shard_map(
        lambda values: jax.lax.fori_loop(0, TURNS, turn, values),
        in_specs=PartitionSpec(),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    given = jax.jit(lambda: tuple(jnp.ones(numbers) * i for i in range(arrays)))()
    program, taken = jax.jit(many).lower(given).compile(), []
    for _ in range(TIMES + 1):
        began = time.perf_counter()
        jax.block_until_ready(program(given))
        taken.append(time.perf_counter() - began)
    return min(taken[1:]) / TURNS


def milliseconds(cores: list[set[int]]) -> dict[str, float]:
    """What two processes on these cores find."""
    address = free_address()
    both = [
        on_cores(own, "benchmarks.messages", f"--process={i}", f"--address={address}")
        for i, own in enumerate(cores)
    ]
    printed = [process.communicate()[0].splitlines()[-1:] for process in both]
    if not all(printed):
        raise SystemExit("a process of the benchmark failed")
    return {name: round(1000 * seconds, 3) for name, seconds in json.loads(printed[0][0]).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--process", type=int)
    parser.add_argument("--address")
    arguments = parser.parse_args()
    if arguments.process is not None:
        return worker(arguments.process, arguments.address)
    found = {
        "milliseconds, on a core each": milliseconds([{0}, {1}]),
        "milliseconds, both on two cores": milliseconds([{0, 1}, {0, 1}]),
        "load": os.getloadavg()[0],
    }
    print(json.dumps(found) if arguments.json else "\n".join(f"{key}: {found[key]}" for key in found))
    return None


if __name__ == "__main__":
    run_benchmark(main)
