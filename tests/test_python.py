"""natgrad from Python: names, arrays, short reprs, progress, trackers of trainings."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import natgrad
from natgrad.data.arrays import saved_arrays
from natgrad.errors import InputError
from natgrad.evaluate.completions import checked_mask
from natgrad.relax.minimize import Result
from trainings import SETTINGS, same

ROWS = np.random.default_rng(0).integers(0, 2, (50, 6))


class Frame:
    """What of a pandas frame or series is used."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values


@pytest.fixture(scope="module")
def run(place):
    return natgrad.train(data=ROWS, out=place / "arrays", **SETTINGS)


@pytest.mark.slow
def test_names_are_found_before_and_after_they_are_imported():
    code = "import natgrad; assert 'jax' not in __import__('sys').modules; print(*dir(natgrad)); "
    code += "print(natgrad.sklearn.HelmholtzMachine.__name__, natgrad.optax.linked.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, found = done.stdout.splitlines()
    assert set(names.split()) >= {*natgrad.__all__, "sklearn", "optax", "relax", "families", "__version__"}
    assert found == "HelmholtzMachine linked"
    assert (Path(natgrad.__file__).parent / "py.typed").exists()
    for name in natgrad.__all__:
        assert getattr(natgrad, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        natgrad.trian  # noqa: B018


@pytest.mark.slow
def test_types_survive_the_lazy_import(tmp_path):
    (tmp_path / "use.py").write_text(
        "import natgrad\nreveal_type(natgrad.train)\nreveal_type(natgrad.Run.plot)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "use.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(Path(natgrad.__file__).parents[1]), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
    )
    assert "natgrad.training.run.Run" in done.stdout
    assert 'Revealed type is "Any"' not in done.stdout


def test_arrays_are_trained_on_and_resumed_from(run, place, tmp_path):
    assert run.trace[-1]["epoch"] == 5
    np.save(tmp_path / "same.npy", ROWS)
    same(natgrad.train(data=tmp_path / "same.npy", out=tmp_path / "file", **SETTINGS).folder, run.folder)
    assert natgrad.resume(run.folder, epochs=6).trace[-1]["epoch"] == 6
    frame = natgrad.train(data=Frame(ROWS), out=place / "frame", **SETTINGS | {"epochs": 0})
    assert frame.config.data.name == run.config.data.name  # the same arrays are one file
    assert Path(run.config.data.name).parent == place


def test_arrays_may_have_labels_or_splits(tmp_path):
    labels = ROWS[:, 0]
    options = {"model": "mlp", "method": "plain", "layers": (2,), "epochs": 1, "batch_size": 8}
    done = natgrad.train(data=(Frame(ROWS), Frame(labels)), out=tmp_path / "pair", **options)
    assert done.trace[-1]["test_error"] <= 1
    splits = {name: np.load(saved_arrays({name: ROWS[:20]}, tmp_path))[name] for name in ("train", "test")}
    assert [array.shape for array in splits.values()] == [(20, 6), (20, 6)]
    with pytest.raises(
        InputError, match=r"have no labels to learn; .* an .npz file with labels \(train_labels"
    ):
        natgrad.train(data=ROWS, out=tmp_path / "none", **options)
    with pytest.raises(
        InputError, match=r"expected numbers, for classes 0, 1, 2, ... in labels, got the type"
    ):
        natgrad.train(data=(ROWS, labels.astype(str)), out=tmp_path / "words", **options)
    with pytest.raises(InputError, match=r"data: expected \(rows, labels\), got 3 arrays"):
        natgrad.train(data=(ROWS, labels, labels), out=tmp_path / "three", **options)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (3, r"data: expected \[rows, visible\] .* in images, got the shape \(\); give an array of rows"),
        ([], r"data: expected \[rows, visible\] .* got the shape \(0,\)"),
        (np.full((9, 2), np.nan), "data: expected finite numbers in images, got NaN or infinity"),
        ({}, "data: expected arrays by the names of their splits, got none; give train"),
        ((ROWS, ROWS[:3, 0]), r"data: expected 50 labels, one for each row, got the shape \(3,\)"),
        ({"test": ROWS, "test_labels": ROWS}, r"expected 50 test_labels, .*, got the shape \(50, 6\)"),
        ({"train": ROWS, "tset": ROWS}, "unknown split 'tset'; did you mean 'test'?"),
        ({"images": ROWS, "label": ROWS[:, 0]}, "unknown split 'label'; did you mean 'labels'?"),
    ],
)
def test_arrays_that_cannot_be_trained_on_are_refused_before_they_are_saved(data, sentence, tmp_path):
    with pytest.raises(InputError, match=sentence):
        saved_arrays(data, tmp_path)
    assert not list(tmp_path.iterdir())


def test_arguments_of_another_kind_are_refused_in_a_sentence(run):
    """Before anything is done: no traceback from inside."""
    path = "expected a path, got 3; give a text or a Path"
    mesh = 'mesh: expected a text such as "rows=4,units=2", got 3'
    watch = "watch: expected an object with the methods advanced and evaluated, got 3; give one such as"
    for call, sentence in (
        (lambda: natgrad.train(watch=3), watch),
        (lambda: natgrad.resume(run.folder, watch=3), watch),
        (lambda: natgrad.train(mesh=3), mesh),
        (lambda: natgrad.resume(run.folder, mesh=3), mesh),
        (lambda: natgrad.train(out=3), f"out: {path}"),
        (lambda: natgrad.train(3), f"file: {path}"),
        (lambda: natgrad.load(3), f"run: {path}"),
        (lambda: natgrad.resume(3), f"run: {path}"),
        (lambda: run.report(3), f"out: {path}"),
        (lambda: run.model.save(3), f"path: {path}"),
        (lambda: run.plot("tset_ll"), "unknown column 'tset_ll'; did you mean 'test_ll'"),
        (lambda: run.plot(3), "unknown column '3'; known are"),
    ):
        with pytest.raises(InputError, match=sentence):
            call()


def test_reprs_are_short_and_notebooks_get_pictures(run):
    assert len(repr(run)) < 400
    assert "helmholtz, rws on array-" in repr(run)
    assert "the best is" in repr(run)
    assert "valid LL" in repr(run)
    page = run._repr_html_()
    assert page.count("data:image/png;base64,") == 2
    assert repr(run.model).startswith("Trained with 3")
    assert len(repr(run.model)) < 200
    assert run.model._repr_html_().count("data:image/png;base64,") == 1
    assert [line.get_label() for line in run.plot().axes[0].lines][:2] == ["train loss", "valid loss"]
    assert run.plot("test_ll").axes[0].get_ylabel() == "test_ll"
    untrained = replace(run, summary=run.summary | {"best_epoch": 0})
    assert [line.get_label() for line in untrained.plot().axes[0].lines][2:] == ["best by valid ll"]
    assert run.report().read_text("utf-8").startswith("<!doctype html>")


def test_a_result_is_short():
    history = {"evaluations": np.arange(1, 4), "best": np.ones(3), "generation_median": np.ones(3)}
    counts = {"evaluations": 300, "generations": 4, "restarts": 0, "invalid": 0, "success": True}
    found = Result(
        np.zeros(500), 0.25, **counts, message="done", seconds=1.0, history=history, search=np.zeros(10**4)
    )
    assert repr(found).startswith("Result: 0.25 at [0., 0., 0., ..., 0., 0., 0.]\n  300 evaluations")
    assert len(repr(found)) < 200
    assert "data:image/png" in found._repr_html_()


def test_progress_is_shown_if_it_is_asked_for(place, capsys):
    for verbose in (True, False):
        natgrad.train(data=ROWS, out=place / f"{verbose}", verbose=verbose, **SETTINGS | {"epochs": 0})
        assert ("valid LL" in capsys.readouterr().err) == verbose


class Tracker:
    """A stand-in for both packages: it writes down what it is told."""

    def __init__(self):
        self.told, self.active = [], None

    def init(self, **options):
        self.told.append(options)
        return self

    def log(self, numbers, step):
        self.told.append((numbers, step))

    def finish(self):
        self.told.append("finished")

    def active_run(self):
        return self.active

    def start_run(self, **options):
        self.active = self.init(**options)

    log_metrics, end_run = log, finish


@pytest.mark.parametrize(("name", "package"), [("WandbWatcher", "wandb"), ("MlflowWatcher", "mlflow")])
def test_trackers_log_every_row(name, package, monkeypatch):
    with pytest.raises(
        InputError, match=f"needs the package {package}; install it with pip install {package}"
    ):
        getattr(natgrad, name)()
    tracker = Tracker()
    module = SimpleNamespace(__spec__=object())
    for method in ("init", "log_metrics", "active_run", "start_run", "end_run"):
        setattr(module, method, getattr(tracker, method))
    monkeypatch.setitem(sys.modules, package, module)
    watch = getattr(natgrad, name)(tags=["a"])
    watch.advanced(1, 2, 0.5)
    watch.evaluated({"epoch": 0, "step": 0, "train_loss": None, "part.0.residual": 0.5})
    watch.evaluated({"epoch": 1, "step": 9, "valid_loss": 2.0})
    watch.close()
    watch.close()
    first, second = {"epoch": 0.0, "step": 0.0, "part/0/residual": 0.5}, {"epoch": 1.0, "step": 9.0}
    assert tracker.told == [{"tags": ["a"]}, (first, 0), (second | {"valid_loss": 2.0}, 9), "finished"]


def test_a_tracker_is_closed_when_its_training_is_over(place):
    """Also when the training fails; a watcher that cannot be closed need not be."""
    closed = []
    watch = SimpleNamespace(advanced=print, evaluated=lambda row: None, close=lambda: closed.append("now"))
    natgrad.train(data=ROWS, out=place / "closed", watch=watch, **SETTINGS | {"epochs": 0})
    assert closed == ["now"]
    with pytest.raises(InputError, match="is not empty"):
        natgrad.train(data=ROWS, out=place / "closed", watch=watch, **SETTINGS | {"epochs": 0})
    del watch.close
    natgrad.resume(place / "closed", watch=watch)
    assert closed == ["now", "now"]


def test_masks_may_have_the_shape_of_an_image():
    image = np.eye(2, 3, dtype=bool)
    expected = np.broadcast_to(image.reshape(6), (4, 6))
    np.testing.assert_array_equal(checked_mask(image, 4, 6), expected)
    np.testing.assert_array_equal(checked_mask(np.broadcast_to(image, (4, 2, 3)), 4, 6), expected)
    np.testing.assert_array_equal(checked_mask(expected, 4, 6), expected)
    with pytest.raises(InputError, match="expected a mask of 6 values"):
        checked_mask(np.ones((3, 3)), 4, 6)


def test_a_run_that_is_loaded_keeps_its_programs_too(run, monkeypatch):
    kept = []
    monkeypatch.setattr("natgrad.training.run.keep_programs", lambda: kept.append("now"))
    natgrad.load(run.folder)
    assert kept == ["now"]


@pytest.mark.slow
def test_programs_are_kept_on_disk_for_python_too(tmp_path, usual_environment):
    code = "import jax; from natgrad.devices import keep_programs; keep_programs(); "
    code += "print(jax.config.values['jax_compilation_cache_dir'])"
    for given, expected in {"NATGRAD_CACHE": tmp_path / "xla", "JAX_COMPILATION_CACHE_DIR": tmp_path}.items():
        environment = usual_environment | {given: str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
        )
        assert done.stdout.strip() == str(expected)
