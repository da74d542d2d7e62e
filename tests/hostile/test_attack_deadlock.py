"""LAPACK calls side by side can wait for each other forever on few cores: thirty shapes, each in time.

Every program runs in one process with as many threads as there are cores, as users' programs do.
"""

import subprocess
import sys

import pytest

SHAPES = [(layers, units) for layers in (2, 3, 5, 8, 12) for units in (20, 50, 60, 90, 100, 130)]
STEPS = """
import sys
from natgrad import config
from natgrad.data import load
from natgrad.training.session import Session
import numpy as np, tempfile, pathlib

layers, units, solver = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
path = pathlib.Path(tempfile.mkdtemp()) / "d.npy"
np.save(path, np.random.default_rng(0).integers(0, 2, (300, 40)).astype(np.uint8))
settings = config.resolve(dict(
    data=str(path), method="nrws", layers=(units,) * layers, solver=solver, epochs=1, batch_size=16, samples=4
))
settings = settings.model_copy(update={"metric": settings.metric.model_copy(update={"rows": 0})})
session = Session.begin(settings, load(str(path)))
session.advance = session._compile()
state, totals = session.advance(
    session.key_steps, session.state, session._nothing(), session.rows, session._order(0), 0, 5
)
print(int(totals.taken))
"""
MINIMIZE = """
import natgrad
print(natgrad.minimize(lambda x: float(x @ x), int({size}), budget=2000, seed=0).evaluations)
"""


def finished(environment, program, *arguments):
    """What a process prints, which must end in time."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("solver", ["direct", "dual", "shared"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_steps_end(shape, solver, usual_environment, tried):
    assert int(finished(usual_environment, STEPS, *shape, solver)) == 5
    tried("programs with LAPACK calls")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("size", [5, 40, 100])
def test_searches_with_a_full_covariance_end(size, usual_environment, tried):
    assert int(finished(usual_environment, MINIMIZE.format(size=size))) > 0
    tried("programs with LAPACK calls")
