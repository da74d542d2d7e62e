"""Two processes with one core each against one process with two: steps per second, as a ratio.

    NATGRAD_DATA=... python -m benchmarks.scale [--method nrws] [--batch 128] [--rounds 3] [--json]

The layers are those of the paper's MNIST. Both ways take their turns, again and again; of each the best round
counts, since others on the machine only make it slower. The two processes meet at 127.0.0.1, and their mesh
is rows=2. Compilation is not counted.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time

from benchmarks.step import ARCHITECTURES

DATA, LAYERS = ARCHITECTURES["mnist"]


def worker(arguments: argparse.Namespace) -> float:
    """Steps per second of one way, as seen by one of its processes."""
    from natgrad import config
    from natgrad.training import hosts, resume, session
    from natgrad.training.mesh import on_mesh

    mesh = None
    if arguments.process is not None:
        hosts.connect(hosts.Hosts(arguments.address, 2, arguments.process, 60))
        mesh = "rows=2"
    chosen = {"data": DATA, "layers": LAYERS, "method": arguments.method, "batch_size": arguments.batch}
    settings = config.resolve(chosen | {"epochs": 100})
    with on_mesh(mesh):
        training = session.Session.begin(settings, resume.dataset(settings))
        training.advance = training._compile()
        order, best = training._order(0), 0.0
        for number in range(4):  # the first one warms up
            began = time.perf_counter()
            training._chunk(order, number * arguments.steps, (number + 1) * arguments.steps)
            best = max(best, arguments.steps / (time.perf_counter() - began)) if number else 0.0
    return best


def start(arguments: argparse.Namespace, cores: set[int], *more: str) -> subprocess.Popen:
    given = [f"--{name}={getattr(arguments, name)}" for name in ("method", "batch", "steps")]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.scale", "--worker", *given, *more],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )


def printed(process: subprocess.Popen) -> float:
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit("a process of the benchmark failed")
    return float(out.splitlines()[-1])


def together(arguments: argparse.Namespace) -> float:
    return printed(start(arguments, {0, 1}))


def apart(arguments: argparse.Namespace) -> float:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    both = [start(arguments, {core}, f"--process={core}", f"--address={address}") for core in range(2)]
    return min([printed(process) for process in both])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", default="nrws")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--process", type=int)
    parser.add_argument("--address")
    arguments = parser.parse_args()
    if arguments.worker:
        return print(worker(arguments))
    pairs = [(together(arguments), apart(arguments)) for _ in range(arguments.rounds)]
    one, two = (max(side) for side in zip(*pairs, strict=True))
    found = {
        "method": arguments.method,
        "batch": arguments.batch,
        "one_process_two_cores": one,
        "two_processes_one_core_each": two,
        "ratio": two / one,
        "load": os.getloadavg()[1],
        "rounds": pairs,
    }
    print(json.dumps(found) if arguments.json else "\n".join(f"{key}: {found[key]}" for key in found))
    return None


if __name__ == "__main__":
    main()
