"""Processes that are killed: each is forked by one that has imported JAX, which is what takes time."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

# It has not started JAX: what is forked may do so. `kept` and `every` make states that can be compared.
LAUNCHER = """
import json, os, sys
import natgrad, natgrad.training.run, natgrad.relax.runs, natgrad.cli.main
from natgrad.records import state
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        state.KEPT = order.pop("kept", state.KEPT)
        natgrad.relax.runs.EVERY = 0.0
        if "command" in order:
            try:
                natgrad.cli.main.main(order["command"])
            except SystemExit as stopped:
                os._exit(int(stopped.code or 0))
        elif "data" in order:
            natgrad.train(**order)
        else:
            natgrad.resume(order["out"])
        os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@contextmanager
def launching(cache):
    """A function that starts an order in a process of its own: its id, and one that waits for its status."""
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_COMPILATION_CACHE_DIR": str(cache)}
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


def killed_until_done(start, moments):
    """Start, kill after so many seconds, and again; then let it end. How many kills met it alive."""
    kills = 0
    for seconds in moments:
        process, status = start()
        time.sleep(seconds)
        with suppress(ProcessLookupError):  # it had ended
            os.kill(process, signal.SIGKILL)
        code = status()
        assert code in (0, signal.SIGKILL)
        kills += code == signal.SIGKILL
    assert start()[1]() == 0
    return kills
