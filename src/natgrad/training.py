"""Train a model into a run folder, and get a run back from its folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from natgrad import config, generator, registry
from natgrad.data import load as load_data
from natgrad.errors import InputError
from natgrad.evaluate.pictures import save_samples
from natgrad.records import environment, folder
from natgrad.records import state as states
from natgrad.session import Session, Watcher
from natgrad.trained import Trained


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, config, trace and trained model."""

    folder: Path
    config: config.Config
    model: Trained
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
    ones (`**{"objective.baseline": False}`), over those of a TOML file.

    Example:
        run = natgrad.train(data="digits", method="rws", layers=(64, 16), epochs=50)
        run.model.sample(16)
    """
    return run_config(config.resolve(settings, file), out=out, watch=watch)


def run_config(
    settings: config.Config, *, out: str | Path | None = None, watch: Watcher | None = None
) -> Run:
    """Train by a complete config. Nothing is written before the data have been read and found good."""
    folder.check(out)
    _choose_device(settings.training.device)
    settings = _anchored(settings)
    dataset = load_data(
        settings.data.name,
        binarize=settings.data.binarize,
        split_seed=settings.data.split_seed,
        image_shape=settings.data.image_shape,
    )
    session = Session.begin(settings, dataset)
    place = folder.create(out, settings)
    facts = environment.describe() | {"data": {"split": dataset.split, "rows": len(dataset.train)}}
    facts["solvers"] = session.solvers()
    folder.write(place / "environment.json", folder.json_line(facts) + "\n")
    try:
        session.go(place, watch)
    except BaseException:
        folder.discard_unrecorded(place)
        raise
    run = load(place)
    save_samples(place / "samples.png", run.model.means(64), run.model.sample(64), run.image_shape)
    return run


def load(run: str | Path) -> Run:
    """A run from its folder, with the model of its newest good state."""
    place, settings = folder.open_run(run)
    _, notes = states.load(place, ())
    template = jax.eval_shape(lambda: registry.model(generator.key(0), settings.model, notes["visible"]))
    found, _ = states.load(place, _place_of_model(settings, template))
    model = Trained(jax.tree.leaves(found, is_leaf=lambda node: isinstance(node, type(template)))[0])
    shape = tuple(notes["image_shape"]) if notes["image_shape"] else None
    return Run(place, settings, model, list(folder.trace(place)), notes["summary"], shape)


def _place_of_model(settings: config.Config, template: Any) -> Any:
    """Where in a saved state the model to be used is."""
    if settings.evaluation.patience:
        return {"best": template}
    return {"state": {"average" if settings.evaluation.average else "model": template}}


def _anchored(settings: config.Config) -> config.Config:
    """A user's own file by its full path, so that the run can be evaluated from anywhere."""
    if not Path(settings.data.name).is_file():
        return settings
    whole = settings.data.model_copy(update={"name": str(Path(settings.data.name).resolve())})
    return settings.model_copy(update={"data": whole})


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
