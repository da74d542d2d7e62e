"""SIGKILL at any moment: what was killed and continued ends with the bits of what was not."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from hostile.launching import killed_until_done, launching
from natgrad.records import state as states
from natgrad.relax import saved
from trainings import SETTINGS, arrays, timeless

RUNS, KILLS = 4, 5  # each of four runs is killed five times
EPOCHS, PER_EPOCH = 12, 5
NATURAL = SETTINGS | {"method": "nrws", "epochs": EPOCHS, "refresh": 3, "evaluation.patience": 50}
OFTEN = {"batch_size": 8, "training.chunk_steps": 2, "training.save_seconds": 0, "evaluation.every": 20}
KINDS = {
    "network by Hessian-Free": {
        **{"model": "autoencoder", "method": "hessian-free", "layers": (3,)},
        **{"batch_size": 20, "epochs": 60},
    },
    "Boltzmann machine with chains": {"model": "rbm", "hidden": 3, "negative": "pcd", "epochs": 60},
    "variational autoencoder": {"model": "vae", "layers": (3,), "latent": 2, "epochs": 60},
}
SWEEP = """
method = "rws"
layers = [2]
batch_size = 8
epochs = 60
learning_rate = [0.1, 0.2]
training.save_seconds = 0
training.chunk_steps = 2
"""
PAPER = """
[reproduce]
place = "[nrws] table 9"
about = "for the tests"
epochs = 100
samples = 20

[[reproduce.claims]]
variants = ["RWS"]
value = -0.2

[[sweep.variants]]
name = "RWS"
"""
SLOW = """
import time

def valley(x):
    time.sleep(0.0005)
    return float(x @ x)
"""


@pytest.fixture
def launch(tmp_path):
    with launching(tmp_path / "xla") as start:
        yield start


def moments(number, seconds):
    """When to kill: anywhere in the time that the whole takes, and once before it has begun."""
    draw = random.Random(4)
    return [0.01, *(draw.uniform(0, seconds) for _ in range(number - 1))]


def timed(start):
    """How long a process takes that is not killed."""
    began = time.monotonic()
    assert start()[1]() == 0
    return time.monotonic() - began


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
def test_twenty_kills(tmp_path, launch, data, tried):
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
    tried("kills", len(killed))
    assert len(killed) == RUNS * KILLS
    assert len({step for step in killed if 0 < step < EPOCHS * PER_EPOCH}) >= 10, killed


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", KINDS)
def test_kills_of_other_kinds(name, tmp_path, launch, data, tried):
    """From before the first state to the last; `train` again where no run is there yet, else `resume`."""
    order, whole, run = OFTEN | KINDS[name] | {"data": data}, tmp_path / "whole", tmp_path / "run"
    begin = lambda place: launch(**order, out=str(place))  # noqa: E731
    timed(lambda: begin(tmp_path / "warm"))
    seconds = timed(lambda: begin(whole))
    again = lambda: launch(out=str(run)) if (run / "config.toml").exists() else begin(run)  # noqa: E731
    kills = killed_until_done(again, moments(KILLS, seconds))
    tried("kills", kills)
    assert kills >= KILLS - 2
    assert timeless(run) == timeless(whole)
    assert arrays(run) == arrays(whole)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kills_of_a_search(tmp_path, launch, tried):
    (tmp_path / "slow.py").write_text(SLOW)
    line = ["relax", "minimize", f"{tmp_path}/slow.py:valley", "--size", "4", "--budget", "400", "--quiet"]
    search = lambda name: launch(command=[*line, "--out", str(tmp_path / name)])  # noqa: E731
    seconds = timed(lambda: search("whole"))
    kills = killed_until_done(lambda: search("killed"), moments(2, seconds))
    tried("kills", kills)
    assert kills >= 1
    (whole, notes), (killed, noted) = (saved.read_search(tmp_path / name) for name in ("whole", "killed"))
    assert notes == noted
    assert {name: each.tobytes() for name, each in whole.items()} == {
        name: each.tobytes() for name, each in killed.items()
    }


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("text", [SWEEP, SWEEP + PAPER], ids=["sweep", "reproduce"])
def test_kills_of_many_trainings(text, tmp_path, launch, data, tried, request):
    """The command is killed, its worker finds itself alone and ends, and the same command continues."""
    name = request.node.callspec.id
    (tmp_path / "own.toml").write_text(f"data.name = {json.dumps(data)}\n{text}")
    options = ["--epochs", "60"] if name == "reproduce" else []
    line = [name, str(tmp_path / "own.toml"), "--workers", "1", "--quiet", *options]
    many = lambda place: launch(command=[*line, "--out", str(place)])  # noqa: E731
    seconds = timed(lambda: many(tmp_path / "whole"))
    kills = killed_until_done(lambda: many(tmp_path / "killed"), moments(KILLS, seconds))
    tried("kills", kills)
    assert kills >= KILLS - 2
    whole, killed = (
        {run.name: run for run in Path(tmp_path, each).iterdir() if run.is_dir()}
        for each in ("whole", "killed")
    )
    assert whole.keys() == killed.keys()
    for run in whole:
        assert timeless(whole[run]) == timeless(killed[run])
        assert arrays(whole[run]) == arrays(killed[run])
