"""Two processes with one core each against one process with two: steps per second, as a ratio.

    NATGRAD_DATA=... python -m benchmarks.scale [--method nrws] [--batch 128] [--rounds 9] [--json]

The layers are those of the paper's MNIST. All processes stay for all rounds, since the program of a long
training is not kept on disk, and to compile it takes longer than to run it. In every round the two ways take
their turns, so that what else the machine does meets both. Two ratios are printed: the median of the rounds'
own, and that of the best rounds, since others on the machine only make it slower. The two processes meet at
127.0.0.1, and their mesh is rows=2. Compilation is not counted.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

from benchmarks import run_benchmark
from benchmarks.step import ARCHITECTURES

DATA, LAYERS = ARCHITECTURES["mnist"]
ANSWER = "answer:"


def worker(arguments: argparse.Namespace) -> None:
    """One process: for every line that comes in, take some steps and print how many there were a second."""
    from natgrad import config
    from natgrad.training import hosts, session
    from natgrad.training.mesh import on_mesh, own_data

    if arguments.process is not None:
        hosts.connect(hosts.Hosts(arguments.address, 2, arguments.process, 600))
    chosen = {"data": DATA, "layers": LAYERS, "method": arguments.method, "batch_size": arguments.batch}
    settings = config.resolve(chosen | {"epochs": 100})
    with on_mesh(None if arguments.process is None else "rows=2"):
        training = session.Session.begin(settings, own_data(settings))
        training.advance = training._compile()
        order = training._order(0)
        training._chunk(order, 0, arguments.steps)
        print(ANSWER, training.compile_seconds, flush=True)
        for _ in sys.stdin:
            began = time.perf_counter()
            training._chunk(order, 0, arguments.steps)
            print(ANSWER, arguments.steps / (time.perf_counter() - began), flush=True)


def start(arguments: argparse.Namespace, cores: set[int], *more: str) -> subprocess.Popen:
    given = [f"--{name}={getattr(arguments, name)}" for name in ("method", "batch", "steps")]
    return on_cores(cores, "benchmarks.scale", "--worker", *given, *more)


def on_cores(cores: set[int], module: str, *given: str) -> subprocess.Popen:
    """A benchmark as a process on some cores, spoken to by pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )


def answered(process: subprocess.Popen) -> float:
    """The next answer of a process; JAX's engine prints lines of its own between them."""
    for line in process.stdout:
        if line.startswith(ANSWER):
            return float(line.split()[1])
    raise SystemExit("a process of the benchmark failed")


def compiled_one(arguments: argparse.Namespace) -> list[subprocess.Popen]:
    """One process on two cores, ready for its steps."""
    alone = start(arguments, {0, 1})
    print(f"compiled in {answered(alone):.0f} s", file=sys.stderr)
    return [alone]


def free_address() -> str:
    """One on this computer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def compiled_two(arguments: argparse.Namespace) -> list[subprocess.Popen]:
    """Two processes on a core each, ready for their steps."""
    address = free_address()
    both = [start(arguments, {core}, f"--process={core}", f"--address={address}") for core in range(2)]
    for process in both:
        print(f"compiled in {answered(process):.0f} s", file=sys.stderr)
    return both


def turn(processes: list[subprocess.Popen]) -> float:
    """Steps per second of processes that take the same steps together."""
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    return min(answered(process) for process in processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", default="nrws")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--process", type=int)
    parser.add_argument("--address")
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments)
    ways = compiled_one(arguments), compiled_two(arguments)
    rounds = [[turn(way) for way in ways] for _ in range(arguments.rounds)]
    for process in ways[0] + ways[1]:
        process.stdin.close()  # of all of them, since two end together
    for process in ways[0] + ways[1]:
        process.wait()
    one, two = (max(side) for side in zip(*rounds, strict=True))
    found = {
        "method": arguments.method,
        "batch": arguments.batch,
        "one_process_two_cores": one,
        "two_processes_one_core_each": two,
        "ratio": statistics.median(apart / together for together, apart in rounds),
        "ratio_of_the_best": two / one,
        "load": os.getloadavg()[1],
        "rounds": rounds,
    }
    print(json.dumps(found) if arguments.json else "\n".join(f"{key}: {found[key]}" for key in found))
    return None


if __name__ == "__main__":
    run_benchmark(main)
