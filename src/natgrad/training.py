"""Train a model into a run folder, and get a run back from its folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from natgrad import config, generator, interrupts, network_registry, registry, start
from natgrad.defaults import MACHINE
from natgrad.errors import InputError
from natgrad.evaluate.pictures import save_samples
from natgrad.records import environment, folder, lock
from natgrad.records import state as states
from natgrad.records.notes import Notes
from natgrad.session import Session, Watcher
from natgrad.trained import Trained
from natgrad.trained_network import TrainedNetwork


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, config, trace and trained model."""

    folder: Path
    config: config.Config
    model: Any  # a `Trained` Helmholtz machine, or a `TrainedNetwork`
    trace: list[dict[str, Any]]
    summary: dict[str, Any]
    image_shape: tuple[int, int] | None = None


def train(
    file: str | Path | None = None,
    *,
    out: str | Path | None = None,
    watch: Watcher | None = None,
    **settings: Any,
) -> Run:
    """Train a model and write its run folder.

    Settings go by their short names (`data`, `method`, `layers`, `epochs`, ...) or their dotted
    ones (`**{"objective.baseline": False}`), over those of a TOML file. An interrupt is raised after
    the state has been saved: `resume` goes on from there.

    Example:
        run = natgrad.train(data="digits", method="rws", layers=(64, 16), epochs=50)
        run.model.sample(16)
    """
    return run_config(config.resolve(settings, file), out=out, watch=watch)


def run_config(
    settings: config.Config,
    *,
    out: str | Path | None = None,
    watch: Watcher | None = None,
    final: bool = False,
) -> Run:
    """Train by a complete config. Nothing is written before the data have been read and found good.

    With `final` a second signal ends the process, whatever it is doing: for command lines.
    """
    folder.check(out)
    _choose_device(settings.training.device)
    session = start.fresh(settings)
    place = folder.create(out, session.settings)
    with lock.held(place):
        try:
            return _go(session, place, watch, final=final)
        except BaseException:
            folder.discard_unrecorded(place)
            raise


def resume(run: str | Path, *, epochs: int | None = None, watch: Watcher | None = None) -> Run:
    """Go on with a training as if it had never stopped; `epochs` is its new total.

    Schedules keep the length they had: where a learning rate or a damping has fallen to its end, it stays
    there for the additional epochs. A run that is finished is returned as it is.

    Example:
        run = natgrad.resume("runs/digits-rws-1", epochs=100)
    """
    return resume_run(run, epochs=epochs, watch=watch)


def resume_run(
    run: str | Path, *, epochs: int | None = None, watch: Watcher | None = None, final: bool = False
) -> Run:
    """`resume`; with `final` a second signal ends the process, whatever it is doing."""
    place, settings = folder.open_run(run)
    _choose_device(settings.training.device)
    with lock.held(place):
        session = start.saved(place, epochs)
        return load(place) if session is None else _go(session, place, watch, final=final)


def _go(session: Session, place: Path, watch: Watcher | None, *, final: bool) -> Run:
    """Train a session to its end in a folder that is ours."""
    with folder.writing(place):
        if not (place / "environment.json").exists():
            folder.write(place / "environment.json", folder.json_line(_facts(session)) + "\n")
    with interrupts.noted(final=final) as stop:
        session.go(place, watch, stop)
    run = load(place)
    if isinstance(run.model, Trained):
        save_samples(place / "samples.png", run.model.means(64), run.model.sample(64), run.image_shape)
    return run


def load(run: str | Path) -> Run:
    """A run from its folder, with the model of its newest good state."""
    place, settings = folder.open_run(run)
    stored = states.newest(place, Notes.read)
    notes: Notes = stored.notes
    template = jax.eval_shape(lambda: _fresh(settings.model, notes))
    found = stored.fill(_place_of_model(settings, template))
    parameters = jax.tree.leaves(found, is_leaf=lambda node: isinstance(node, type(template)))[0]
    model = _facade(settings, notes, parameters)
    return Run(place, settings, model, list(folder.trace(place)), notes.summary, notes.image_shape)


def _sizes(notes: Notes) -> network_registry.Sizes:
    return network_registry.Sizes(notes.visible, notes.image_shape, notes.outputs)


def _fresh(chosen: config.Model, notes: Notes) -> Any:
    """A model as the state of a run has it."""
    if chosen.kind == MACHINE:
        return registry.model(generator.key(0), chosen, notes.visible)
    return network_registry.fresh(generator.key(0), chosen, _sizes(notes))


def _facade(settings: config.Config, notes: Notes, parameters: Any) -> Trained | TrainedNetwork:
    """The model as its user sees it."""
    chosen, real = settings.model, settings.data.binarize == "real"
    if chosen.kind == MACHINE:
        return Trained(parameters)
    task = network_registry.task(chosen, _sizes(notes))
    mean, predicts = network_registry.PREDICTIONS[chosen.output or "softmax"]
    return TrainedNetwork(parameters, task.network, mean, predicts, notes.visible, real)


def _facts(session: Session) -> dict[str, Any]:
    """What a run ran on."""
    dataset = session.dataset
    facts = environment.describe() | {"data": {"split": dataset.split, "rows": len(dataset.train)}}
    return facts | {"solvers": session.solvers()}


def _place_of_model(settings: config.Config, template: Any) -> Any:
    """Where in a saved state the model to be used is."""
    if settings.evaluation.patience:
        return {"best": template}
    return {"state": {"average" if settings.evaluation.average else "model": template}}


def _choose_device(name: str) -> None:
    if name == "auto":
        return
    try:
        jax.config.update("jax_default_device", jax.devices(name)[0])
    except RuntimeError:
        found = sorted({device.platform for device in jax.devices()})
        raise InputError(
            f"training.device: no {name} found here, only {', '.join(found)}; use --device auto"
        ) from None
