"""Train a model into a run folder, and get a run back from its folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from pydantic import ValidationError

from natgrad import config
from natgrad.data.arrays import is_in_memory, saved_arrays
from natgrad.devices import keep_programs, surroundings
from natgrad.errors import InputError, check_paths
from natgrad.evaluate.pictures import save_sheets
from natgrad.layers import generator
from natgrad.models import registry
from natgrad.records import checkpoints, folder
from natgrad.records import state as states
from natgrad.records.notes import Notes
from natgrad.training import hosts, signals
from natgrad.training import resume as restored
from natgrad.training.mesh import by_one_device, is_first, on_mesh, own_data, shown_mesh
from natgrad.training.notebook import drawn_curves, run_html, run_text
from natgrad.training.session import Session
from natgrad.training.watcher import Together, Watcher, check_watcher, end_watch
from natgrad.writing import write

_REPORT = "natgrad.report.making:report_runs"  # which reads runs
_PROGRESS = "natgrad.cli.progress:ProgressBar"


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run: its folder, config, trace and trained model."""

    folder: Path
    config: config.RunSettings
    model: Any  # what the kind of model gives its users
    trace: list[dict[str, Any]]
    summary: dict[str, Any]
    shape: Any = None

    def __repr__(self) -> str:
        return run_text(self)

    def _repr_html_(self) -> str:
        return run_html(self)

    def plot(self, column: str | None = None) -> Any:
        """Training and validation loss, or one column of the trace, against epochs: a matplotlib figure."""
        return drawn_curves(self, column)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the run's page, by default report.html in its folder, and say where it is."""
        return Path(registry.resolve_reference(_REPORT)([self.folder], out=out)["report"])

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """Height and width of the images that the rows are, if they are."""
        return getattr(self.shape, "image_shape", None)


def train(
    file: str | Path | None = None,
    *,
    out: str | Path | None = None,
    watch: Watcher | None = None,
    verbose: bool = False,
    mesh: str | None = None,
    **settings: Any,
) -> Run:
    """Train a model and write its run folder.

    `data` is the name of a data set or a file, or an array of rows, a pair (rows, labels), or a dict of
    splits; frames of pandas are arrays too. Arrays are saved beside the run, so that it can be resumed.
    `verbose` shows the progress, in notebooks too. `mesh` splits the work over devices, as in
    "rows=4,units=2" (docs/scale.md). Settings have their short names (`method`, `layers`,
    `epochs`, ...) or their dotted ones (`**{"objective.baseline": False}`); they replace those of a file.
    An interrupt is raised after the state has been saved: `resume` continues from there.

    Example:
        run = natgrad.train(data="digits", method="rws", layers=(64, 16), epochs=50)
        run.model.sample(16)
    """
    check_paths(file=file, out=out)
    _check_given(watch, mesh)
    if is_in_memory(settings.get("data")):
        settings["data"] = saved_arrays(settings["data"], Path(out).parent if out else Path("runs"))
    chosen = config.resolve(settings, file)
    with _progress(chosen, watch, verbose=verbose) as told:
        return run_config(chosen, out=out, watch=told, mesh=mesh)


def _check_given(watch: Any, mesh: Any) -> None:
    """Refuse, before any work, what is neither a watcher nor a mesh."""
    check_watcher(watch)
    if not isinstance(mesh, str | None):
        raise InputError(f'mesh: expected a text such as "rows=4,units=2", got {mesh!r}')


@contextmanager
def _progress(settings: config.RunSettings, watch: Watcher | None, *, verbose: bool) -> Iterator[Any]:
    """A watcher, with a progress bar beside it if that is asked for; it is told when the training is over."""
    try:
        if not verbose:
            yield watch
            return
        with registry.resolve_reference(_PROGRESS)(settings) as bar:
            yield bar if watch is None else Together(bar, watch)
    finally:
        end_watch(watch)


def run_config(
    settings: config.RunSettings,
    *,
    out: str | Path | None = None,
    watch: Watcher | None = None,
    final: bool = False,
    mesh: str | None = None,
) -> Run:
    """Train by a complete config. Nothing is written before the data have been read and found good.

    With `final` a second signal ends the process, whatever it is doing: for command lines.
    """
    if is_first():
        folder.check_output_folder(out)
    _choose_device(settings.training.device, mesh)
    with on_mesh(mesh, settings.training.device):
        session = _new_session(settings)
        own = session.settings
        with folder.new_run(out, own) if is_first() else hosts.other_place(own) as place:
            return _go(session, place, watch, final=final)


def _new_session(settings: config.RunSettings) -> Session:
    """A session at step zero; a user's own file by its full path, so that the run is good from anywhere."""
    name = Path(settings.data.name)
    if os.path.isfile(name):  # which also takes a name too long for the system, unlike Path
        whole = settings.data.model_copy(update={"name": str(name.resolve())})
        settings = settings.model_copy(update={"data": whole})
    return Session.begin(settings, own_data(settings))


def resume(
    run: str | Path,
    *,
    epochs: int | None = None,
    watch: Watcher | None = None,
    verbose: bool = False,
    mesh: str | None = None,
) -> Run:
    """Continue a training as if it had never stopped; `epochs` is its new total.

    Schedules keep the length they had: where a learning rate or a damping has fallen to its end, it stays
    there for the additional epochs. A run that is finished is returned as it is. The mesh may be another one
    than before, or none.

    Example:
        run = natgrad.resume("runs/digits-rws-1", epochs=100)
    """
    _check_given(watch, mesh)
    settings = folder.open_run(run)[1]
    total = settings.training.epochs if epochs is None else epochs
    training = settings.training.model_copy(update={"epochs": total})
    shown = settings.model_copy(update={"training": training})
    with _progress(shown, watch, verbose=verbose) as told:
        return resume_run(run, epochs=epochs, watch=told, mesh=mesh)


def resume_run(
    run: str | Path,
    *,
    epochs: int | None = None,
    watch: Watcher | None = None,
    final: bool = False,
    mesh: str | None = None,
) -> Run:
    """`resume`; with `final` a second signal ends the process, whatever it is doing."""
    place, settings = folder.open_run(run)
    _choose_device(settings.training.device, mesh)
    with on_mesh(mesh, settings.training.device), hosts.old_place(place) as held:
        session = restored.saved(held, epochs)
        if session is None:
            return load(held)
        hosts.check_same(session)
        return _go(session, held, watch, final=final)


def _go(session: Session, place: Path, watch: Watcher | None, *, final: bool) -> Run:
    """Train a session to its end in a folder that is ours."""
    with folder.writing(place):
        if not (place / "environment.json").exists():
            write(place / "environment.json", folder.json_line(_facts(session)) + "\n")
    with signals.noted(final=final) as stop:
        session.go(place, watch, stop)
    if sheets := by_one_device(session.problem.pictures, session.best.state(session.state)):
        save_sheets(place / "samples.png", sheets)
    return load(place)


def load(run: str | Path, *, step: int | None = None, last: bool = False) -> Run:
    """A run from its folder, with the model that was best on validation data.

    `last` asks for the last model instead, `step` for the copy of a step's model: copies are kept at steps 1,
    2, 4, 8, ... with `evaluation.log_checkpoints`.
    """
    keep_programs()
    place, settings = folder.open_run(run)
    stored = states.newest(place, Notes.read)
    notes: Notes = stored.notes
    spec = registry.spec_of(settings.model.kind)
    kind, shape = registry.resolve_reference(spec.kind), _shape(spec, notes, place)
    template = jax.eval_shape(lambda: kind.fresh(generator.key(0), settings, shape))
    if step is not None:
        copied = kind.trained(settings, shape, checkpoints.copy_of(place, step, template), {})
        return Run(place, settings, copied, list(folder.trace(place)), notes.summary, shape)
    place_of = _place_of_last(settings, template) if last or not stored.has("best") else {"best": template}
    found = stored.fill(place_of)
    parameters = jax.tree.leaves(found, is_leaf=lambda node: isinstance(node, type(template)))[0]
    carried = stored.part("best_objective") if "best" in place_of else {}
    model = kind.trained(settings, shape, parameters, carried or stored.part("state.objective"))
    return Run(place, settings, model, list(folder.trace(place)), notes.summary, shape)


def _shape(spec: registry.Spec, notes: Notes, place: Path) -> Any:
    """What the data decided of the model, as its kind understands it."""
    try:
        return spec.shape.model_validate(notes.shape)
    except ValidationError:
        raise InputError(
            f"the state of {place} does not say the sizes of its model; train it again"
        ) from None


def _facts(session: Session) -> dict[str, Any]:
    """What a run ran on."""
    dataset = session.dataset
    facts = surroundings() | shown_mesh()
    facts |= {"data": {"split": dataset.split, "rows": len(dataset.train)}}
    return facts | session.problem.facts(session.info)


def _place_of_last(settings: config.RunSettings, template: Any) -> dict[str, Any]:
    """Where in a saved state the last model is, or the average of late ones."""
    return {"state": {"average" if settings.evaluation.average else "model": template}}


def _choose_device(name: str, mesh: str | None) -> None:
    """Compute on the first device of a name; a mesh takes all that it needs of them."""
    if name == "auto":
        return
    try:
        found = jax.devices(name)[0]
        jax.config.update("jax_default_device", None if mesh else found)
    except RuntimeError:
        others = sorted({device.platform for device in jax.devices()})
        raise InputError(
            f"training.device: no {name} found here, only {', '.join(others)}; use --device auto"
        ) from None
