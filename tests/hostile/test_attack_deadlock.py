"""LAPACK calls side by side can wait for each other forever on few cores: thirty shapes, each in time.

`make attack` takes one solver for every shape, in turns; the other two are sixty programs more.
Every program runs in one process with as many threads as there are cores, as users' programs do.
"""

import subprocess
import sys

import pytest

SOLVERS = ("direct", "dual", "shared")
DEPTHS, WIDTHS = (12, 8, 5, 3, 2), (20, 50, 60, 90, 100, 130)
SHAPES = {  # the deepest, which call LAPACK most often, come first
    (layers, units): SOLVERS[(row + column) % 3]
    for row, layers in enumerate(DEPTHS)
    for column, units in enumerate(WIDTHS)
}
STEPS = """
import sys
from natgrad import config
from natgrad.data import load
from natgrad.training.session import Session
import numpy as np, tempfile, pathlib

layers, units = map(int, sys.argv[1:3])
path = pathlib.Path(tempfile.mkdtemp()) / "d.npy"
np.save(path, np.random.default_rng(0).integers(0, 2, (300, 40)).astype(np.uint8))
for solver in sys.argv[3:]:
    settings = config.resolve(dict(
        data=str(path), method="nrws", layers=(units,) * layers, solver=solver,
        epochs=1, batch_size=16, samples=4,
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
import sys
import jax, natgrad

def sphere(x):
    return x @ x

done = 0
for size in (5, 20, 60, 100):
    for function in (jax.jit(sphere), lambda x: float(sphere(x))):
        done += natgrad.minimize(function, size, method=sys.argv[1], budget=1000, seed=0).evaluations > 0
print(done)
"""
SQUARES = """
import sys
import jax, jax.numpy as jnp, natgrad

def misses(parameters, points):
    (first, second), (x, y) = parameters, points
    return jnp.tanh(x @ first) @ second - y, 0.1 * jnp.concatenate([first.ravel(), second])

done = 0
for rows in (10, 300):
    for units in (2, 50):
        keys = jax.random.split(jax.random.key(rows + units), 4)
        start = [jax.random.normal(key, shape) for key, shape in zip(keys, ((4, units), (units,)))]
        points = jax.random.normal(keys[2], (rows, 4)), jax.random.normal(keys[3], (rows,))
        found = natgrad.least_squares(misses, tuple(start), points, method=sys.argv[1], steps=5)
        done += found.loss >= 0
print(done)
"""


def finished(environment, program, *arguments):
    """What a process prints, which must end in time."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))


@pytest.mark.slow
@pytest.mark.timeout(1000)
@every_shape
def test_steps_end(shape, usual_environment, tried):
    assert finished(usual_environment, STEPS, *shape, SHAPES[shape]).split() == ["5"]
    tried("programs with LAPACK calls")


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("method", ["adaptive", "xnes", "rank-mu"])
def test_searches_with_a_full_covariance_end(method, usual_environment, tried):
    """Four sizes, of functions that are compiled with the search and of those that are not."""
    assert int(finished(usual_environment, MINIMIZE, method)) == 8
    tried("programs with LAPACK calls", 8)


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("method", ["lm", "gauss-newton", "spring"])
def test_least_squares_end(method, usual_environment, tried):
    """More rows than parameters, and fewer: systems of either side."""
    assert int(finished(usual_environment, SQUARES, method)) == 4
    tried("programs with LAPACK calls", 4)


@pytest.mark.slow
@pytest.mark.timeout(1000)
@every_shape
def test_steps_of_other_solvers_end(shape, usual_environment, tried):
    others = [solver for solver in SOLVERS if solver != SHAPES[shape]]
    assert finished(usual_environment, STEPS, *shape, *others).split() == ["5", "5"]
    tried("programs with LAPACK calls", 2)
