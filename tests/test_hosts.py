"""Trainings of several processes on this computer: the same steps, and what happens when one is lost."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import natgrad
from natgrad.cli import supervised
from natgrad.cli.main import main
from scale_cases import CASES, HELD_OUT, ROWS, begun, printed, tiny_data, training_of

COMMAND = [sys.executable, "-c", "from natgrad.cli.main import main; main()"]
LOST = "another process of the training has ended or cannot be reached any more"
PER_EPOCH = ROWS // 16
SETTINGS = {
    "method": "rws",
    "layers": 8,
    "batch-size": 16,
    "training.save-seconds": 0,
    "evaluation.every": 50,
}
SOON = 30  # seconds, of a computer that has other things to do; the time-out itself is 10


@pytest.fixture(scope="module")
def file(place):
    return tiny_data(place)


def address():
    """One on this computer that is free."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def command(*tokens, before=(), **more):
    """A command with its output in pipes."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"} | more
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    return subprocess.Popen([*before, *COMMAND, *map(str, tokens)], **options)


def both(*tokens):
    """The two processes of a command."""
    flags = ("--mesh", "rows=2", "--coordinator", address(), "--processes", 2, "--peer-timeout", 10, "--json")
    return [command(*tokens, *flags, "--process", number) for number in range(2)]


def tokens_of(file, out, *more):
    settings = [token for name, value in SETTINGS.items() for token in (f"--{name}", value)]
    return "train", "--data", file, *settings, "--quiet", "--out", out, *more


def training(file, out, *more):
    return both(*tokens_of(file, out, *more))


def wait_for(state, seconds=120):
    """Until a run has saved something after its beginning."""
    end = time.monotonic() + seconds
    while not [name for name in state.glob("*.json") if int(name.stem[:10])]:
        assert time.monotonic() < end
        time.sleep(0.05)


def same_steps(file, *names):
    where = address()
    processes = [begun("rows=2", *names, HOSTS=f"{where},2,{number}") for number in range(2)]
    with ThreadPoolExecutor(2) as readers:  # at once: neither ends before the other has said all
        found = list(readers.map(lambda process: printed(process, 1000), processes))
    for name in names:
        np.testing.assert_allclose(
            found[0][name]["steps"], training_of(name, file)["steps"], rtol=0, atol=1e-10
        )
        assert found[0][name]["steps"] == found[1][name]["steps"]
        assert found[1][name]["read"] == ROWS // 2 + 2 * HELD_OUT  # its own; the first one looks at all


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_processes_take_the_steps_of_one_with_every_method(file):
    same_steps(file, *CASES)


def kill_one(file, out, which, moment):
    """Kill one of two processes at a moment after the first save; the other says so, the run continues.

    It continues on one device, to where one device alone comes.
    """
    processes = training(file, out, "--epochs", 3000)
    try:
        wait_for(out / "state")
        time.sleep(moment)
        processes[which].send_signal(signal.SIGKILL)
        began = time.monotonic()
        printed, said = processes[1 - which].communicate(timeout=60)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert time.monotonic() - began < SOON
    assert processes[1 - which].returncode == 2
    assert LOST in json.loads(printed)["error"]
    assert said.count("\n") == 1
    saved = max(int(name.stem[:10]) for name in (out / "state").glob("*.json"))
    epochs = saved // PER_EPOCH + 1
    assert json.loads((out / "environment.json").read_text())["mesh"] == {"rows": 2}
    continued = natgrad.resume(out, epochs=epochs).summary
    settings = {name.replace("-", "_"): value for name, value in SETTINGS.items()} | {"layers": (8,)}
    alone = natgrad.train(data=file, epochs=epochs, out=f"{out}-alone", **settings).summary
    assert continued["steps"] == alone["steps"] == epochs * PER_EPOCH
    assert continued["valid_ll"] == pytest.approx(alone["valid_ll"], abs=1e-8)


@pytest.mark.slow
def test_a_process_that_is_killed_costs_nothing_that_was_saved(file, place):
    kill_one(file, place / "killed", 1, 0.1)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_processes_killed_at_ten_moments(file, place):
    draw = random.Random(0)
    for number in range(10):
        kill_one(file, place / f"killed-{number}", draw.randrange(2), draw.uniform(0, 3))


@pytest.mark.slow
def test_two_processes_continue_what_two_began_and_one_can_read_it(file, place):
    out = place / "two"
    for tokens in (("--epochs", 1), ()):
        processes = training(file, out, *tokens) if tokens else both("resume", out, "--epochs", 3)
        found = [process.communicate(timeout=200) for process in processes]
        assert [process.returncode for process in processes] == [0, 0], found
        assert found[1] == ("", "")
    assert json.loads(found[0][0])["steps"] == 3 * PER_EPOCH
    assert json.loads((out / "environment.json").read_text())["processes"] == 2


def test_a_missing_process_is_told_in_a_sentence(place):
    began = time.monotonic()
    flags = ("--mesh", "rows=2", "--coordinator", address(), "--processes", 2, "--peer-timeout", 1)
    alone = command("train", *flags, "--process", 0, "--out", place / "missing")
    _, said = alone.communicate(timeout=120)
    assert alone.returncode == 2
    assert said.startswith("natgrad: not all processes of the training came together in time")
    assert said.count("\n") == 1
    assert time.monotonic() - began < 60
    assert not (place / "missing").exists()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--processes", "2"), "expected --coordinator HOST:PORT, --processes N and --process I together"),
        (
            ("--coordinator", "127.0.0.1:1", "--processes", "2", "--process", "0"),
            "several processes need a mesh",
        ),
    ],
)
def test_flags_that_do_not_go_together_are_refused(capsys, monkeypatch, flags, sentence):
    monkeypatch.setattr(supervised, "one_of_several", lambda tokens, command: command(tokens))
    with pytest.raises(SystemExit) as ended:
        main(["train", *flags])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def by_slurm(*tokens):
    """Two tasks of a step, as their environment says; the port is one of 4096, by the number of the job."""
    step = {"SLURM_JOB_ID": os.getpid(), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": 2}
    for task in range(2):
        of_task = step | {"SLURM_PROCID": task, "SLURM_LOCALID": task, "SLURM_STEP_NUM_NODES": 1}
        yield command(*tokens, **{name: str(value) for name, value in of_task.items()})


def by_open_mpi(*tokens):
    """Two processes that mpirun starts; both print to the same pipe."""
    if shutil.which("mpirun") is None:
        pytest.skip("NO MPIRUN HERE: Debian has it as openmpi-bin")
    yield command(*tokens, before=("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"))


@pytest.mark.slow
@pytest.mark.parametrize("start", [by_slurm, by_open_mpi])
def test_processes_of_a_cluster_find_each_other(start, file, place):
    out = place / start.__name__
    flags = ("--epochs", 1, "--mesh", "rows=2", "--cluster", "--json")
    processes = list(start(*tokens_of(file, out, *flags)))
    found = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), found
    assert json.loads(found[0][0])["steps"] == PER_EPOCH
    environment = json.loads((out / "environment.json").read_text())
    assert (environment["processes"], environment["mesh"]) == (2, {"rows": 2})
