"""Every message that the documentation lists is one that can be had: each is provoked, and compared.

A table of docs/*.md whose first column is called "message" lists messages, or their beginnings, in which
capitals (RUN, N, X, FILE, DIR) and dots stand for anything. Each needs a function here that provokes it and
returns what was said.
"""

import errno
import itertools
import json
import re
import shutil
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natgrad
from cases import machine
from natgrad import config
from natgrad.cli import main, supervised, tensorboard
from natgrad.cli.reproduce import reproduce as reproduce_command
from natgrad.config.sections import FORMAT
from natgrad.core import State
from natgrad.data import load as load_data
from natgrad.errors import InputError
from natgrad.models.helmholtz.estimator import HelmholtzMachine
from natgrad.models.helmholtz.trained import Trained
from natgrad.records import folder
from natgrad.records import state as states
from natgrad.report.listing import list_runs
from natgrad.report.making import report_runs
from natgrad.reproduce.files import read_reproduction
from natgrad.reproduce.limits import Budget
from natgrad.reproduce.plans import plan_for, with_data
from natgrad.sweep import sweep
from natgrad.sweep.plan import read_plan
from natgrad.sweep.search import SettingSearch
from natgrad.sweep.store import open_study
from natgrad.sweep.tickets import TicketStore
from natgrad.training import chunk, estimators, session
from natgrad.training import compile as compiling
from natgrad.training import resume as start
from natgrad.training.chunk import Course
from natgrad.training.hosts import check_same
from natgrad.training.mesh import check_split, on_mesh
from trainings import SETTINGS

DOCS = Path(__file__).parents[1] / "docs"


def tables(path):
    """The first cells of every table of messages in a page."""
    head = r"^\| message \|[^\n]*\n\|[ -|]+\|\n((?:\|[^\n]*\n?)+)"
    for rows in re.findall(head, path.read_text("utf-8"), re.MULTILINE):
        yield from (line.split(" | ")[0].removeprefix("| ") for line in rows.splitlines())


def pattern(message):
    """What matches a message as documented: one that begins so, and does not continue within a word."""
    parts = re.split(r"\b(?:RUN|FILE|DIR|N|X)\b|\.\.\.", message)
    return ".+".join(map(re.escape, parts)) + r"(?!\w)"


DOCUMENTED = {path.name: [cell.strip("`") for cell in tables(path)] for path in sorted(DOCS.glob("*.md"))}


def said(action):
    """The one sentence of an action that must fail."""
    with pytest.raises(InputError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def trained(place, data):
    """A finished run with a falling learning rate."""
    jax.config.update("jax_numpy_dtype_promotion", "standard")  # optax's schedules want it
    settings = SETTINGS | {"epochs": 2, "optimizer.schedule": "cosine"}
    yield natgrad.train(data=data, out=place / "trained", **settings).folder
    jax.config.update("jax_numpy_dtype_promotion", "strict")


class Scene:
    """Where messages are provoked: an empty folder, a run of one's own in it, a patch, a log."""

    def __init__(self, tmp_path, trained, data, monkeypatch, caplog):
        self.here, self.trained, self.data, self.patch, self.log = (
            tmp_path,
            trained,
            data,
            monkeypatch,
            caplog,
        )

    @property
    def run(self):
        return shutil.copytree(self.trained, self.here / "run")

    def file(self, name, content=""):
        (self.here / name).write_text(content)
        return self.here / name

    def npz(self, **arrays):
        np.savez_compressed(self.here / "a.npz", **arrays)
        return self.here / "a.npz"

    def train(self, **settings):
        return said(lambda: natgrad.train(data=self.data, **SETTINGS | {"out": self.here / "new"} | settings))

    def plan(self, text, **places):
        file = self.file(
            "s.toml", f'method = "rws"\ntraining.batch_size = 8\ndata.name = "{self.data}"\n' + text
        )
        return said(lambda: sweep(file, out=self.here / "out", **places))

    def sealed(self, run, **changes):
        """The run, its manifests changed and sealed again; `progress` changes that of the notes."""
        for path in states.manifests(run):
            content = {name: value for name, value in json.loads(path.read_text()).items() if name != "seal"}
            content["notes"]["progress"] |= changes.pop("progress", {})
            content |= changes
            path.write_text(json.dumps(content | {"seal": states._seal(content)}))
        return run

    def logged(self, action, part):
        """The line of the log that has this part."""
        action()
        return next(each.message for each in self.log.records if part in each.message)


@pytest.fixture
def scene(tmp_path, trained, data, monkeypatch, caplog):
    return Scene(tmp_path, trained, data, monkeypatch, caplog)


def config_of_format(number):
    def load(scene):
        path = scene.run / "config.toml"
        path.write_text(path.read_text().replace("format = 4", f"format = {number}"))
        return said(lambda: natgrad.load(path.parent))

    return load


def newer_state(scene):
    run = scene.sealed(scene.run, format=3)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert said(lambda: natgrad.load(run)) == said(lambda: natgrad.resume(run, epochs=9))
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before | {
        run / "state/lock": b""
    }
    return said(lambda: natgrad.load(run))


def no_state(scene):
    run = scene.run
    shutil.rmtree(run / "state")
    return said(lambda: natgrad.load(run))


def other_config(scene):
    path = scene.run / "config.toml"
    path.write_text(config.dump(config.resolve({"layers": (4,)}, path)))
    return said(lambda: natgrad.load(path.parent))


def other_precision(scene):
    with jax.enable_x64(False):
        return said(lambda: natgrad.load(scene.trained))


def first_release(scene):
    run = scene.run
    for path in states.manifests(run):
        content = json.loads(path.read_text())
        content["notes"].pop("progress")
        path.write_text(json.dumps(content | {"format": 1}))
    return said(lambda: natgrad.resume(run))


def damaged_trace(scene):
    run = scene.run
    (run / "trace.jsonl").write_text('{"epo\n{}\n')
    return said(lambda: natgrad.load(run))


def other_data(scene):
    run, own = scene.run, scene.here / "own.npy"
    np.save(own, np.random.default_rng(1).random((50, 2, 3)))
    (run / "config.toml").write_text(config.dump(config.resolve({"data": own}, run / "config.toml")))
    return said(lambda: natgrad.resume(run, epochs=9))


def held(scene):
    with folder.held(run := scene.run):
        return said(lambda: natgrad.resume(run))


def refusing(number, text):
    def refuse(*args, **kwargs):
        raise OSError(number, text)

    return refuse


def no_locks(scene):
    scene.patch.setattr(folder.fcntl, "flock", refusing(errno.ENOLCK, "No locks available"))
    return said(lambda: natgrad.resume(scene.run))


def full_disk(scene):
    scene.patch.setattr(folder.os, "fsync", refusing(errno.ENOSPC, "No space left on device"))
    return said(lambda: natgrad.resume(scene.run, epochs=1 << 20))


def settings_of_resume(scene):
    return said(lambda: main._run(["resume", str(scene.trained), "--optimizer.name", "adam"]))


def diverging(scene, later=1.0):
    """Every chunk is refused, its loss a little less each time, and nothing is compiled for it."""
    losses = (1e6 * later**number for number in itertools.count())
    scene.patch.setattr(chunk, "course", lambda before, after: Course(next(losses), 1e6, 0.0))
    scene.patch.setattr(session.Session, "_compile", lambda self: lambda *given: (given[1], given[2]))
    scene.patch.setattr(
        session.Session, "_look", lambda self: vars(self.progress).update(lowest=1.0, jump=1.0)
    )
    return scene.train()


def too_large_a_step(scene):
    scene.patch.setattr(compiling, "memory_bytes", lambda: 1)
    scene.patch.setattr(compiling, "_programs", OrderedDict())
    return scene.train(batch_size=9)


def labels_that_are_names(scene):
    rows = np.random.default_rng(0).integers(0, 2, (40, 6)).astype(np.uint8)
    path = scene.npz(train=rows, train_labels=np.arange(40) * 10**8)
    return said(
        lambda: natgrad.train(data=path, model="mlp", layers=(2,), batch_size=8, out=scene.here / "o")
    )


def in_the_log(part):
    def provoke(scene):
        diverging(scene, later=0.9)
        return scene.logged(lambda: None, part)

    return provoke


def too_many_arrays(scene):
    return said(lambda: load_data(scene.npz(**{f"a{number}": np.eye(2) for number in range(101)})))


def odd_archive(scene):
    with zipfile.ZipFile(scene.here / "a.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("train.npy", b"")
    return said(lambda: load_data(scene.here / "a.npz"))


def wide_rows(scene):
    return said(lambda: load_data(scene.npz(train=np.zeros((3, (1 << 20) + 1), np.uint8))))


def damaged_state(scene):
    run = scene.run
    states.manifests(run)[0].write_text("")
    return scene.logged(lambda: natgrad.load(run), "an older one is used")


def stopped_early(scene):
    run = scene.sealed(scene.run, progress={"stale": 7})
    text = config.dump(config.resolve({"evaluation.patience": 3, "epochs": 9}, run / "config.toml"))
    (run / "config.toml").write_text(text)
    return scene.logged(lambda: start.saved(run, None), "stopped early")


def two_sweeps(scene):
    import fcntl

    (scene.here / "out").mkdir()
    with (scene.here / "out/trials.jsonl").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        return scene.plan("")


def two_sweeps_with_a_record(scene):
    import fcntl

    with (scene.here / "r.jsonl").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        return scene.plan("", record=scene.here / "r.jsonl")


def no_optuna(scene):
    scene.patch.setitem(sys.modules, "optuna", None)
    return said(lambda: SettingSearch({"a": [1]}, 0, scene.here / "search.jsonl"))


def no_optuna_to_join(scene):
    scene.patch.setitem(sys.modules, "optuna", None)
    return said(lambda: open_study("s.journal", "s"))


def no_driver(scene):
    scene.patch.setattr("natgrad.sweep.store.importlib.util.find_spec", lambda name: None)
    return said(lambda: open_study("mysql://me@localhost/sweeps", "s"))


def another_sweep_of_this_name(scene):
    def join(rates):
        plan = read_plan(scene.file("s.toml", f'data.name = "{scene.data}"\n{RATE}{rates}'), {})
        return TicketStore(str(scene.here / "s.journal"), "s", plan)

    join("[0.1, 0.2]")
    return said(lambda: join("[0.1, 0.3]"))


def crowded_batch(scene):
    scene.patch.setattr("natgrad.training.mesh.parts", lambda axis: 4)
    return said(lambda: check_split(6))


def supervisor_says(scene, met):
    heard = []
    scene.patch.setattr("natgrad.cli.streams.complain", lambda sentence, to_json: heard.append(sentence))
    assert supervised._judged(supervised.LOST, met, "", to_json=False) == 2
    return heard[0]


def different_steps(scene):
    scene.patch.setattr("natgrad.training.hosts.agreed", lambda number: number + 1)
    return said(lambda: check_same(SimpleNamespace(state=SimpleNamespace(steps=3))))


def missing_data(scene):
    for name in ("NATGRAD_DATA", "NATGRAD_CACHE"):
        scene.patch.setenv(name, str(scene.here))
    return said(lambda: with_data(plan_for(read_reproduction("table6"), 1, [0])))


def narrow_features(scene):
    fitted = HelmholtzMachine()
    fitted.model_ = natgrad.load(scene.trained).model
    return said(lambda: fitted.inverse_transform(np.zeros((2, 4))))


def other_sizes(scene):
    states_ = [State(machine(sizes), (), (), (), jnp.int32(0), ()) for sizes in ((3, 2), (3, 4))]
    return said(lambda: estimators._continued(*states_))


def unwritable_report(scene):
    run = scene.run
    shutil.rmtree(run / "state")  # no reconstructions
    return said(lambda: report_runs([run], out=scene.here / "none" / "page.html"))


def no_tensorboard(scene):
    scene.patch.setattr(tensorboard, "find_spec", lambda name: None)
    return said(lambda: tensorboard.Events(scene.here))


def other_format(scene):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(1)}, scene.here / "m", {"format": "other"})
    return said(lambda: Trained.load(scene.here / "m"))


def half_a_model(scene):
    from safetensors.numpy import save_file

    about = {"format": "natgrad-helmholtz-1", "sizes": "4,2", "off": "-1.0", "on": "1.0"}
    save_file({"prior": np.zeros(2)}, scene.here / "m", about)
    return said(lambda: Trained.load(scene.here / "m"))


RATE = "optimizer.learning_rate = "
SEARCH = "sweep.trials = 3\n"
LARGE = np.zeros((1 << 16, 800), np.uint8)
TRIGGERS = {
    "runs.md": [
        config_of_format(1),
        config_of_format(FORMAT + 1),
        newer_state,
        lambda scene: said(lambda: natgrad.load(scene.here)),
        no_state,
        other_config,
        other_precision,
        first_release,
        damaged_trace,
        lambda scene: said(lambda: folder.cut(scene.trained, 99)),
        other_data,
        held,
        no_locks,
        full_disk,
        lambda scene: scene.train(out=scene.file("file") / "run"),
        lambda scene: said(lambda: natgrad.train(out=scene.trained)),
        lambda scene: said(lambda: natgrad.resume(scene.run, epochs=1)),
        settings_of_resume,
        lambda scene: diverging(scene, later=0.9),
        diverging,
        lambda scene: scene.train(batch_size=41),
        lambda scene: scene.train(epochs=10**9),
        lambda scene: scene.train(layers=(1,) * 101),
        lambda scene: scene.train(layers=(10**9, 10**9)),
        too_large_a_step,
        labels_that_are_names,
        lambda scene: said(lambda: load_data(scene.npz(train=LARGE))),
        too_many_arrays,
        wide_rows,
        odd_archive,
        lambda scene: said(lambda: config.read_toml(scene.file("c.toml", "# x\n" * 20_000))),
        damaged_state,
        lambda scene: scene.logged(lambda: natgrad.resume(scene.run), "is finished"),
        stopped_early,
        lambda scene: scene.logged(lambda: start.saved(scene.run, 9), "stays at"),
        in_the_log("is rejected"),
        in_the_log("continuing from"),
    ],
    "sweep.md": [
        lambda scene: scene.plan(RATE + "[]"),
        lambda scene: scene.plan("model.layers = [[3], 4]"),
        lambda scene: scene.plan(RATE + "{low = 0.1, high = 1}"),
        lambda scene: scene.plan(SEARCH + RATE + "{low = 1, high = 0.1}"),
        lambda scene: scene.plan(SEARCH + RATE + "{low = 0, high = 1, log = true}"),
        lambda scene: scene.plan(SEARCH),
        no_optuna,
        lambda scene: scene.plan(SEARCH + "sweep.variants = [{}, {}]"),
        lambda scene: scene.plan("sweep.confirm = [0]"),
        lambda scene: scene.plan("epochs = 1\nsweep.seeded = ['epochs']"),
        lambda scene: scene.plan("sweep.criterion = 'valid_error'"),
        lambda scene: scene.plan("sweep.columns = ['test_error']"),
        lambda scene: scene.plan("damping = 0.1"),
        lambda scene: scene.plan("seeds = [1]\nsweep.seeds = [2]"),
        lambda scene: scene.plan(f"data.split_seed = {list(range(101))}\n{RATE}{list(range(1, 102))}"),
        lambda scene: said(
            lambda: sweep(scene.file("s.toml", "training.epochs = 1"), out="/proc/natgrad/sweep")
        ),
        lambda scene: scene.plan("", record=scene.file("file") / "r.jsonl"),
        two_sweeps,
        two_sweeps_with_a_record,
        lambda scene: said(lambda: open_study("sqlite:///sweeps", "s")),
        no_driver,
        no_optuna_to_join,
        lambda scene: said(lambda: open_study(str(scene.here / "none" / "s.journal"), "s")),
        lambda scene: said(lambda: open_study(str(scene.file("own.txt", "mine")), "s")),
        another_sweep_of_this_name,
        lambda scene: said(lambda: sweep(scene.file("s.toml"), workers=0)),
    ],
    "reproduce.md": [
        lambda scene: said(lambda: read_reproduction("tabel1")),
        lambda scene: said(reproduce_command),
        lambda scene: said(Budget(minutes=1, epochs=1).checked),
        lambda scene: said(Budget(minutes=0).checked),
        lambda scene: said(Budget(seeds=0).checked),
        lambda scene: said(lambda: read_reproduction(scene.file("s.toml", "epochs = 1"))),
        missing_data,
    ],
    "sklearn.md": [
        lambda scene: said(lambda: HelmholtzMachine().fit(2 * np.eye(3))),
        narrow_features,
        other_sizes,
    ],
    "report.md": [
        lambda scene: said(lambda: report_runs([scene.here])),
        lambda scene: said(lambda: report_runs([])),
        unwritable_report,
        lambda scene: said(lambda: list_runs(scene.here / "none")),
        no_tensorboard,
    ],
    "scale.md": [
        lambda scene: said(lambda: on_mesh("rows=1000").__enter__()),
        crowded_batch,
        lambda scene: supervisor_says(scene, met=True),
        lambda scene: supervisor_says(scene, met=False),
        different_steps,
    ],
    "export.md": [
        lambda scene: said(lambda: Trained(machine()).save(scene.here / "none" / "m")),
        lambda scene: said(lambda: Trained.load(scene.here / "none")),
        other_format,
        half_a_model,
    ],
}
"""How to provoke the messages of each page, in the order of its tables."""


@pytest.mark.parametrize("page", sorted({*TRIGGERS, *(name for name, found in DOCUMENTED.items() if found)}))
def test_every_message_has_its_trigger(page):
    assert len(TRIGGERS.get(page, ())) == len(DOCUMENTED[page]), f"one for each message of {page}, in order"


CASES = [
    (message, trigger)
    for page, triggers in TRIGGERS.items()
    for message, trigger in zip(DOCUMENTED[page], triggers, strict=False)
]


@pytest.mark.parametrize(("message", "trigger"), CASES, ids=[message for message, _ in CASES])
def test_what_is_said_is_what_is_documented(scene, message, trigger):
    assert re.match(pattern(message), trigger(scene)), message


def test_messages_are_found_and_compared():
    assert {page: len(found) for page, found in DOCUMENTED.items() if found}.keys() == set(TRIGGERS)
    assert len(DOCUMENTED["runs.md"]) > 25
    assert re.match(pattern("RUN holds N of ..."), "a/b holds 7 of it; do")
    for other in ("holds 7 of it", "a holds 7 off it", "a holds of it"):
        assert not re.match(pattern("RUN holds N of ..."), other)
    assert not re.match(pattern("the end"), "the ending")
