"""SIGKILL at any moment: a training that was killed and resumed ends with the bits of one that was not."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from natgrad.records import state as states
from trainings import SETTINGS, arrays, timeless

RUNS, KILLS = 4, 5  # each of four runs is killed five times
EPOCHS, PER_EPOCH = 12, 5
NATURAL = SETTINGS | {"method": "nrws", "epochs": EPOCHS, "refresh": 3, "evaluation.patience": 50}

# Importing JAX is what takes time: a process that has done so, but has not started it, forks for each run.
LAUNCHER = """
import json, os, sys
import natgrad
import natgrad.training.run
from natgrad.records import state
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        state.KEPT = order.pop("kept", state.KEPT)
        run = natgrad.train(**order) if "data" in order else natgrad.resume(order["out"])
        os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture
def launch(tmp_path):
    """Start a training in a process of its own; returns its id and a function that waits for its status."""
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "xla")}
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER],
        env=os.environ | quick | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def start(**order):
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline()), lambda: int(process.stdout.readline())

    yield start
    process.kill()
    process.communicate()


def wait(run, step, seconds=600):
    """Until a state of that step or a later one is there."""
    end = time.monotonic() + seconds
    while not any(int(path.stem[:10]) >= step for path in states.manifests(run)):
        assert time.monotonic() < end, f"step {step} was not reached"
        time.sleep(0.004)


def left(run, whole):
    """How far a killed run is; its newest state is the very one that the uninterrupted run passed through."""
    found = states.manifests(run)
    if not found:
        return -1
    assert arrays(run) == arrays(whole, found[0].stem)
    return int(found[0].stem[:10])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_kills(tmp_path, launch, data):
    """At twenty random moments, in compiling, steps, evaluations and saving; resumed, and killed again."""
    order, whole = NATURAL | {"data": data}, tmp_path / "whole"
    _, status = launch(**order, out=str(whole), kept=1000)
    assert status() == 0
    assert len(timeless(whole)) == EPOCHS // 2 + 1
    draw, killed = random.Random(4), []
    for number in range(RUNS):
        run = tmp_path / f"run{number}"
        process, status = launch(**order, out=str(run))
        while not (run / "config.toml").exists():
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 1.0))  # while it compiles, or evaluates for the first time
        for step in [*sorted(draw.sample(range(1, EPOCHS * PER_EPOCH - 8), KILLS - 1)), None]:
            os.kill(process, signal.SIGKILL)
            assert status() == signal.SIGKILL
            killed.append(left(run, whole))
            process, status = launch(out=str(run))
            if step is not None:
                wait(run, step)
                time.sleep(draw.uniform(0, 0.05))
        assert status() == 0
        assert timeless(run) == timeless(whole)
        assert arrays(run) == arrays(whole)
    assert len(killed) == RUNS * KILLS
    assert len({step for step in killed if 0 < step < EPOCHS * PER_EPOCH}) >= 10, killed
