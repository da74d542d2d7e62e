"""Resuming: a training that was stopped anywhere ends with the bits of one that never was."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import natgrad
from natgrad import config, writing
from natgrad.core import Pace
from natgrad.errors import InputError
from natgrad.models.helmholtz import kind, methods
from natgrad.records import folder
from natgrad.records import state as states
from natgrad.training import resume as start
from natgrad.training.checks import OPERATIONS, chunk_length
from natgrad.training.session import CUT
from natgrad.training.signals import Interrupted, noted
from trainings import SETTINGS, After, Killed, arrays, die, press, same, timeless

PLAIN = {"evaluation.average": 0.8, "evaluation.patience": 9, "objective.growth": ((2, 4),)} | {
    "optimizer": "adam",
    "optimizer.schedule": "exponential",
}
EARLY = {"learning_rate": 3.0, "epochs": 12, "evaluation.every": 1, "evaluation.patience": 3}
CASES = {
    "nothing special": {},
    "frozen metric": {"method": "nrws", "refresh": 4, "optimizer": "momentum"},
}
SLOW = {
    "plain method, every option": PLAIN,
    "early stopping": EARLY,
    "averaged weights": {"evaluation.average": 0.8, "evaluation.patience": 9, "evaluation.every": 1},
    "growing samples": {"objective.growth": ((1, 2), (3, 4))},
    "adam, cosine": {"optimizer": "adam", "optimizer.schedule": "cosine"},
    "adaptive, sleeps": {"method": "nrws", "metric.adaptive": True, "objective.sleeps": 2},
    "growing, frozen": {"objective.growth": ((1, 2), (3, 4)), "method": "nrws", "refresh": 3},
    "metric renewed when due": {
        "method": "nrws",
        "metric.renewal_kl": 1e-3,
        "metric.recognition": "mixed",
        "optimizer.warmup": 3,
    },
    "deep, damping falls": {"method": "nrws", "layers": (3, 2), "metric.final_damping": 0.02},
    "natural method, every option": PLAIN
    | {
        "method": "nrws",
        "metric.gradient_decay": 0.5,
        "metric.average": 0.5,
        "refresh": 2,
    },
    "natural method, every length": {
        "method": "nrws",
        "metric.gradient_decay": 0.5,
        "metric.kl_radius": 0.1,
        "metric.adaptive": True,
        "generation.rate": 0.02,
        "recognition.refresh": 2,
        "objective.growth": ((2, 4),),
    },
}


@pytest.fixture(scope="module", autouse=True)
def promotion():
    """optax's Adam and its schedules want JAX's own rules of promotion."""
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(scope="module")
def whole(place, data):
    """The uninterrupted run of some settings, trained once."""
    found = {}

    def train(**settings):
        name = f"whole-{len(found)}"
        key = repr(sorted(settings.items()))
        if key not in found:
            found[key] = natgrad.train(data=data, out=place / name, **SETTINGS | settings)
        return found[key]

    return train


def stopped(out, data, chunks, action=die, **settings):
    """A run that was ended after so many chunks."""
    with pytest.raises(Killed if action is die else Interrupted):
        natgrad.train(data=data, out=out, watch=After(chunks, action), **SETTINGS | settings)
    return out


@pytest.mark.parametrize("case", [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)])
@pytest.mark.few(1)
def test_a_stopped_training_goes_on_bit_for_bit(tmp_path, data, whole, case):
    """Stopped twice: in the middle of an epoch, by a signal, and at the end of one, by a kill."""
    settings = (CASES | SLOW)[case]
    run = stopped(tmp_path / "run", data, 4, press(), **settings)
    assert natgrad.load(run).trace[-1]["epoch"] <= 1
    with pytest.raises(Killed):
        natgrad.resume(run, watch=After(5, die))
    finished = natgrad.resume(run)
    expected = whole(**settings)
    same(run, expected.folder)
    assert timeless(run) == timeless(finished.trace)
    assert finished.summary["steps"] == expected.summary["steps"]


@pytest.mark.parametrize("chunks", [pytest.param(3, marks=pytest.mark.slow), 14])
def test_rows_after_the_saved_state_are_cut(tmp_path, data, whole, chunks):
    """Saved at evaluations only: up to two epochs of work are lost, and done again."""
    rare = {"training.save_seconds": 1e9}
    run = stopped(tmp_path / "run", data, chunks, **rare)
    rows = len(timeless(run))
    assert len(states.manifests(run)) == min(2, rows)
    with (run / "trace.jsonl").open("a") as stream:
        stream.write('{"epoch": 77}\n{"epo')
    natgrad.resume(run)
    assert timeless(run) == timeless(whole(**rare).folder)
    assert arrays(run) == arrays(whole(**rare).folder)


def test_saving_changes_no_number(whole):
    often, rare = whole(), whole(**{"training.save_seconds": 1e9})
    assert timeless(often.folder) == timeless(rare.folder)
    assert arrays(often.folder) == arrays(rare.folder)


@pytest.mark.parametrize(
    "case", [{}, pytest.param(SLOW["averaged weights"], marks=pytest.mark.slow)], ids=["plain", "averaged"]
)
@pytest.mark.slow
def test_more_epochs_are_those_of_a_longer_training(tmp_path, data, whole, case):
    """The shorter one ends with an evaluation that the longer one does not make: its row goes."""
    longer = case | {"epochs": 7, "evaluation.every": 3}
    natgrad.train(data=data, out=tmp_path / "run", **SETTINGS | longer | {"epochs": 5})
    assert [row["epoch"] for row in timeless(tmp_path / "run")] == [0, 3, 5]
    natgrad.resume(tmp_path / "run", epochs=7)
    assert [row["epoch"] for row in timeless(tmp_path / "run")] == [0, 3, 6, 7]
    same(tmp_path / "run", whole(**longer).folder)
    assert config.read_toml(tmp_path / "run" / "config.toml") == config.read_toml(
        whole(**longer).folder / "config.toml"
    )


@pytest.mark.slow
def test_an_extension_that_was_killed_goes_on(tmp_path, data, whole):
    run = tmp_path / "run"
    natgrad.train(data=data, out=run, **SETTINGS | {"epochs": 3})
    with pytest.raises(Killed):
        natgrad.resume(run, epochs=5, watch=After(1, die))
    natgrad.resume(run)
    same(run, whole().folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [{"optimizer.schedule": "linear"}, SLOW["deep, damping falls"]],
    ids=["rate", "damping"],
)
def test_schedules_keep_their_length(tmp_path, data, whole, case):
    """What the longer training equals is one whose schedules were told their length: the config says it."""
    run = tmp_path / "run"
    natgrad.train(data=data, out=run, **SETTINGS | case | {"epochs": 3})
    found = natgrad.resume(run, epochs=5)
    assert found.config.training.schedule_steps == 15
    same(run, whole(**case, **{"training.schedule_steps": 15}).folder)
    assert natgrad.resume(run, epochs=6).config.training.schedule_steps == 15


@pytest.mark.parametrize(
    ("schedule", "decay", "ends"),
    [
        ("cosine", 15, True),
        ("linear", 15, True),
        ("inverse", 15, False),
        ("cosine", 25, False),
    ],
)
def test_a_rate_that_has_come_to_its_end_is_said(caplog, schedule, decay, ends):
    """It was cut once, too. The inverse of the step keeps falling."""
    chosen = {"optimizer.schedule": schedule, "training.schedule_steps": decay, "learning_rate": 0.1}
    settings = config.resolve(chosen | {"optimizer.final_fraction": 0.1, "epochs": 5})
    session = SimpleNamespace(
        settings=settings,
        total=25,
        pace=Pace(decay, CUT),
        problem=SimpleNamespace(rate=lambda pace: methods.rate_of(settings, pace)),
    )
    start._say_pace("run", session)
    notice = (
        "the learning rate of run stays at 0.0025 from step 15 of 25, where its schedule ends; "
        "for a longer schedule train again, with --epochs 5"
    )
    assert caplog.messages == [notice] * ends


def test_fewer_epochs_than_planned(tmp_path, data, whole):
    run = stopped(tmp_path / "run", data, 5)
    with pytest.raises(
        InputError, match=r"epochs: expected at least the 2 that .* has begun, got 1; give more"
    ):
        natgrad.resume(run, epochs=1)
    natgrad.resume(run, epochs=3)
    same(run, whole(epochs=3).folder)


def test_a_finished_run_says_so_and_stays_as_it_is(whole, caplog):
    run = whole()
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    again = natgrad.resume(run.folder)
    assert "is finished after 5 epochs: nothing to do; give more --epochs" in caplog.text
    assert again.summary == run.summary
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_training_that_stopped_early_is_finished(whole, caplog):
    run = whole(**EARLY)
    assert len(run.trace) < 13
    natgrad.resume(run.folder, epochs=100)
    assert "stopped early at epoch" in caplog.text
    assert config.read_toml(run.folder / "config.toml")["training"]["epochs"] == 12


def test_a_run_killed_before_its_first_state_begins_again(tmp_path, data, whole):
    run = stopped(tmp_path / "run", data, 1)
    shutil.rmtree(run / "state")
    natgrad.resume(run)
    same(run, whole().folder)


def test_a_run_whose_states_were_lost_later_is_not_begun_again(tmp_path, data):
    run = stopped(tmp_path / "run", data, 8)
    shutil.rmtree(run / "state")
    trace = (run / "trace.jsonl").read_text()
    with pytest.raises(InputError, match="holds no readable state; train it again, or restore"):
        natgrad.resume(run)
    assert (run / "trace.jsonl").read_text() == trace


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 4
    path.write_bytes(bytes(raw))


@pytest.mark.parametrize(
    ("kind", "harm"),
    [
        pytest.param("json", flip, marks=pytest.mark.slow),
        ("safetensors", lambda path: os.truncate(path, 100)),
    ],
    ids=["flipped", "truncated"],
)
def test_a_damaged_state_gives_way_to_the_one_before(tmp_path, data, whole, kind, harm, caplog):
    run = stopped(tmp_path / "run", data, 4)
    newest, _ = states.manifests(run)
    harm(newest.with_suffix(f".{kind}"))
    natgrad.resume(run)
    assert f"the state {newest.stem} of {run} is damaged; an older one is used" in caplog.text
    same(run, whole().folder)


def test_damaged_states_are_all_left_alone(tmp_path, data):
    run = stopped(tmp_path / "run", data, 4)
    for manifest in states.manifests(run):
        flip(manifest)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match="holds no readable state"):
        natgrad.resume(run)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_trace_that_lost_rows_is_said(tmp_path, data):
    run = stopped(tmp_path / "run", data, 8)
    (run / "trace.jsonl").write_text("")
    with pytest.raises(InputError, match=r"fewer good rows than the 2 that the saved state counts; restore"):
        natgrad.resume(run)


def test_other_data_are_said(tmp_path, data):
    shutil.copy(data, tmp_path / "own.npy")
    run = stopped(tmp_path / "run", str(tmp_path / "own.npy"), 4)
    np.save(tmp_path / "own.npy", np.random.default_rng(1).random((50, 2, 3)))
    with pytest.raises(InputError, match=r"are no longer those that .* was trained on; restore them"):
        natgrad.resume(run)


def test_a_state_of_the_first_release_is_said(tmp_path, data):
    run = stopped(tmp_path / "run", data, 1)
    for manifest in states.manifests(run):
        content = json.loads(manifest.read_text())
        content = {**content, "format": 1, "notes": {**content["notes"], "progress": None}}
        manifest.write_text(json.dumps(content))
    assert natgrad.load(run).summary["epochs"] == 0
    with pytest.raises(
        InputError, match=r"written by natgrad 0.1.0 and is too small to continue from; train"
    ):
        natgrad.resume(run)


def full(*args):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "call", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("fsync", "replace")), "write"]
)
def test_a_full_disk_is_said_and_costs_nothing(tmp_path, data, whole, monkeypatch, call):
    """The disk fills up in the middle of training; what was saved stays, and continues when there is room."""
    run = tmp_path / "run"

    def fill():
        if call == "fsync":
            monkeypatch.setattr(folder.os, "fsync", full)
        elif call == "replace":
            monkeypatch.setattr(folder.Path, "replace", full)
        else:
            monkeypatch.setattr(writing, "_put", half_written)

    def half_written(path, flags, raw):
        with path.open("ab") as stream:
            stream.write(raw[: len(raw) // 2])
        full()

    with pytest.raises(
        InputError,
        match=r"cannot write to the run .*: No space left on device; what was saved before is kept",
    ):
        natgrad.train(data=data, out=run, watch=After(5, fill), **SETTINGS)
    monkeypatch.undo()
    assert not list(run.rglob("*.tmp"))
    assert natgrad.load(run).summary["epochs"] == 0
    natgrad.resume(run)
    same(run, whole().folder)


def test_a_folder_that_may_not_be_written_is_said(tmp_path, data, monkeypatch):
    run = stopped(tmp_path / "run", data, 1)

    whole = os.open

    def refuse(path, flags, mode=0o777):
        if Path(path).name == "lock":
            raise PermissionError(errno.EACCES, "Permission denied")
        return whole(path, flags, mode)

    monkeypatch.setattr(folder.os, "open", refuse)
    with pytest.raises(InputError, match=r"cannot write to the run .*: Permission denied; .* allow writing"):
        natgrad.resume(run)


def test_one_process_at_a_time(tmp_path, data):
    run = stopped(tmp_path / "run", data, 1)
    code = (
        "import sys; from pathlib import Path; from natgrad.records import folder\n"
        "with folder.held(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    other = subprocess.Popen([sys.executable, "-c", code, str(run)], **pipes)
    try:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match=r"another process is training .*; wait for it, or stop it"):
            natgrad.resume(run)
        assert natgrad.load(run).trace
    finally:
        other.kill()
        other.communicate()
    with folder.held(run):  # a killed process leaves no lock
        pass


def test_disks_without_locks_are_said(tmp_path, monkeypatch):
    def refuse(handle, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(folder.fcntl, "flock", refuse)
    with (
        pytest.raises(InputError, match=r"cannot lock .* \(No locks available\); put the run on a disk"),
        folder.held(tmp_path),
    ):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_chunk_and_says_how_to_go_on(tmp_path, data, number):
    run = tmp_path / "a run"
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt) as stop:
        natgrad.train(data=data, out=run, watch=After(2, press(number)), **SETTINGS)
    assert str(stop.value) == (
        f"interrupted and saved at step 4 of 25; continue with `natgrad resume '{run}'`"
    )
    assert stop.value.signal == number
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert states.manifests(run)[0].stem == "0000000004"


@pytest.fixture
def interruptible():
    """Python's own handler of SIGINT, which a process started in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_second_signal_is_not_noted(interruptible):
    with noted() as stop:
        press()()
        assert stop.number == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            press()()
    threads = threading.active_count()
    with noted(final=True) as stop:
        press(signal.SIGTERM)()
        assert stop.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(-1) == -1
    assert threading.active_count() == threads


# The command line in a process of its own. In its second chunk it is inside one long call that no signal
# interrupts, as it would be in compiled steps, only longer.
PATIENT = """
import hashlib, sys
from natgrad.training import session
from natgrad.cli.main import main
honest, count = session.Session._chunk, 0
def chunk(self, *span):
    global count
    count += 1
    if count == 2:
        print("busy", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1 << 30)
    return honest(self, *span)
session.Session._chunk = chunk
main(sys.argv[1:])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_second_signal_ends_a_process_at_once(place, tmp_path, data, whole, number):
    """Without a traceback, in the middle of a chunk; what was saved before it is whole, and continues."""
    run = tmp_path / "run"
    flags = [f"--{name.replace('_', '-') if '.' not in name else name}" for name in SETTINGS]
    texts = [str(value).strip("(),") for value in SETTINGS.values()]
    words = [word for pair in zip(flags, texts, strict=True) for word in pair]
    cached = {"JAX_COMPILATION_CACHE_DIR": str(place / "xla"), "JAX_ENABLE_X64": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", PATIENT, "train", "--data", data, "--out", str(run), "--quiet", *words],
        env=os.environ | cached | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "busy\n"
    process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)  # the first is for the end of the chunk
    process.send_signal(number)
    out, err = process.communicate(timeout=5)
    assert (process.returncode, out, err) == (128 + number, "", "")
    assert [path.stem for path in states.manifests(run)] == ["0000000002", "0000000000"]
    natgrad.resume(run)
    same(run, whole().folder)


@pytest.mark.slow
def test_other_threads_train_without_signals(tmp_path, data, whole):
    done = []
    thread = threading.Thread(
        target=lambda: done.append(natgrad.train(data=data, out=tmp_path / "run", **SETTINGS))
    )
    thread.start()
    thread.join()
    same(tmp_path / "run", whole().folder)


def test_chunks_of_heavy_steps_are_short():
    def steps(visible, samples, **settings):
        resolved = config.resolve(settings)
        return chunk_length(resolved, kind._operations(resolved, visible, samples))

    weights = 65 * 200 + 201 * 64 + 201 * 100 + 101 * 200
    assert steps(64, 10, layers=(200, 100)) == OPERATIONS // (8 * weights * 320)
    assert steps(64, 10, layers=(200, 100), **{"objective.sleeps": 3}) == OPERATIONS // (24 * weights * 320)
    assert steps(6, 3, layers=(3,)) == 500
    assert steps(6, 3, layers=(10**6, 10**6)) == 1


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"epochs": 10**9}, r"expected at most 2147483647 steps, got 5000000000; lower --epochs or"),
        ({"training.schedule_steps": 10**10}, r"expected a whole number up to 1000000000, got 10000000000"),
        (
            {"layers": (10**9, 10**9)},
            r"the weights of this model, a copy and a gradient take .*make --layers",
        ),
    ],
)
def test_what_cannot_be_trained_is_said_before_anything_is_made(tmp_path, data, settings, match):
    with pytest.raises(InputError, match=match):
        natgrad.train(data=data, out=tmp_path / "run", **SETTINGS | settings)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_resumes(tmp_path, data, whole, capsys):
    from natgrad.cli.main import main

    def call(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        return exit_.value.code, *capsys.readouterr()

    run = stopped(tmp_path / "run", data, 4)
    code, out, err = call("resume", run, "--json")
    assert (code, out.count("\n")) == (0, 1)
    assert json.loads(out)["steps"] == 25
    assert "epoch    4  train loss" in err
    same(run, whole().folder)
    code, out, _ = call("resume", run, "--epochs", "6", "--quiet")
    assert (code, out) == (0, "")
    for arguments, sentence in {
        ("resume", tmp_path): "is not a run folder (it has no config.toml)",
        ("resume", run, "--epochs", "2"): "epochs: expected at least the 6 that",
        ("resume", run, "--epochs", "x"): "expected a whole number, got 'x'",
        (
            "resume",
            run,
            "--optimizer.name",
            "adam",
        ): "resume takes no settings of a training, got optimizer.name; leave them out",
    }.items():
        code, out, err = call(*arguments)
        assert (code, out) == (2, "")
        assert sentence in err


def test_resuming_prints_the_signal_and_ends_with_its_code(tmp_path, data, capsys, monkeypatch):
    from natgrad.cli import progress
    from natgrad.cli.main import main

    run = stopped(tmp_path / "run", data, 1)
    monkeypatch.setattr(progress.ProgressBar, "advanced", lambda *args: press(signal.SIGTERM)())
    with pytest.raises(SystemExit) as stop:
        main(["resume", str(run), "--json", "--quiet"])
    assert stop.value.code == 143
    sentence = json.loads(capsys.readouterr().out)["error"]
    assert sentence == f"interrupted and saved at step 2 of 25; continue with `natgrad resume {run}`"


@pytest.mark.parametrize(
    "settings",
    [
        {
            "metric.final_damping": 0.02,
            "metric.gradient_decay": 0.5,
            "metric.average": 0.5,
            "solver": "direct",
        },
        pytest.param({"metric.adaptive": True, "metric.kl_radius": 0.1}, marks=pytest.mark.slow),
        pytest.param({"objective.sleeps": 2, "optimizer": "momentum"}, marks=pytest.mark.slow),
    ],
)
def test_a_stage_with_the_same_number_of_samples_changes_nothing(settings, tmp_path):
    """Schedules, averages and an optimizer's memory last from stage to stage."""
    settings = SETTINGS | {"method": "nrws", "optimizer.schedule": "cosine", "epochs": 4} | settings
    plain = natgrad.train(out=tmp_path / "plain", **settings)
    same_number = ((2, plain.config.objective.samples),)
    staged = natgrad.train(out=tmp_path / "staged", **settings | {"objective.growth": same_number})
    assert timeless(list(staged.trace)) == timeless(list(plain.trace))
