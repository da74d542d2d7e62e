"""Where a training continues: where a saved state left it.

A run continues from its newest good state. Two kinds of state are skipped: damaged ones, and the
last of a training whose final evaluation a longer training would not have made (there the state
saved just before it serves). With other epochs than before, schedules keep their length.
"""

import logging
from pathlib import Path

import jax.numpy as jnp

from natgrad import config
from natgrad.data import Dataset
from natgrad.errors import InputError
from natgrad.models import registry
from natgrad.records import folder
from natgrad.records import state as states
from natgrad.records.notes import Notes, TrainingProgress
from natgrad.training.checks import is_over, learned
from natgrad.training.mesh import own_data
from natgrad.training.session import Session
from natgrad.writing import write

_log = logging.getLogger(__name__)


def saved(place: Path, epochs: int | None) -> Session | None:
    """The session of a run where it was left, its config and trace put right; None if it is finished."""
    before = folder.open_run(place)[1]
    settings = config.resolve({} if epochs is None else {"epochs": epochs}, place / "config.toml")
    if not states.manifests(place) and sum(1 for _ in folder.trace(place)) <= 1:
        session = Session.begin(
            settings, own_data(settings)
        )  # killed before its first state: nothing is lost
    else:
        stored = _stored(place, settings)
        if is_over(stored.notes.progress, settings):
            _log.warning(_finished(place, settings, stored.notes.progress))
            return None
        session = _restored(stored, before, settings)
    if epochs is not None:
        _say_pace(place, session)
    with folder.writing(place):
        folder.cut(place, session.progress.rows)
        if session.settings != before:
            write(place / "config.toml", config.dump(session.settings))
    return session


def _stored(place: Path, settings: config.RunSettings) -> states.Stored:
    """The state to continue from."""
    stored = states.newest(place, lambda content: _resumable(Notes.read(content), settings))
    at, asked = stored.notes.progress, settings.training.epochs
    if at is None:
        raise InputError(
            f"the state of {place} was written by natgrad 0.1.0 and is too small to continue from; "
            "train it again"
        )
    if (at.epoch, at.position) > (asked, 0):
        least = at.epoch + (at.position > 0)
        raise InputError(
            f"epochs: expected at least the {least} that {place} has begun, got {asked}; give more --epochs"
        )
    return stored


def _restored(stored: states.Stored, before: config.RunSettings, settings: config.RunSettings) -> Session:
    found = own_data(settings)
    if stored.notes.checksums != found.split["checksums"]:
        raise InputError(
            f"the data {settings.data.name} are no longer those that {stored.folder} was trained on; "
            "restore them, or train again"
        )
    return Session.restore(_keeping_pace(before, settings, found), found, stored)


def _resumable(notes: Notes | None, settings: config.RunSettings) -> Notes | None:
    """Notes of a state to continue from; None after an evaluation that a longer training does not make."""
    if notes is None or notes.progress is None:
        return notes
    at = notes.progress
    ended = at.position == 0 and at.recorded == at.epoch and at.epoch % settings.evaluation.every
    return None if ended and at.epoch != settings.training.epochs else notes


def _keeping_pace(
    before: config.RunSettings, settings: config.RunSettings, found: Dataset
) -> config.RunSettings:
    """The config in which schedules are as long as they were."""
    chosen = settings.training
    scheduled = registry.spec_of(settings.model.kind).is_scheduled(settings)
    if chosen.epochs == before.training.epochs or chosen.schedule_steps or not scheduled:
        return settings
    steps = learned(settings, found) // before.training.batch_size * before.training.epochs
    return settings.model_copy(
        update={"training": chosen.model_copy(update={"schedule_steps": max(steps, 1)})}
    )


def _say_pace(place: Path, session: Session) -> None:
    """A longer training whose learning rate has come to its end hardly moves: its user should know."""
    ends, steps = session.settings.training.schedule_steps, session.total
    if not ends or ends >= steps:
        return
    schedule = session.problem.rate(session.pace)
    first, rate, last = (float(schedule(jnp.asarray(at))) for at in (0, ends, steps))
    if rate == last < first:
        _log.warning(
            "the learning rate of %s stays at %.3g from step %d of %d, where its schedule ends; "
            "for a longer schedule train again, with --epochs %d",
            *(place, rate, ends, steps),
            session.settings.training.epochs,
        )


def _finished(place: Path, settings: config.RunSettings, at: TrainingProgress) -> str:
    if at.epoch < settings.training.epochs:
        why = "its validation loss stopped falling"
        return f"{place} stopped early at epoch {at.epoch} ({why}): nothing to do"
    return (
        f"{place} is finished after {at.epoch} epoch{'' if at.epoch == 1 else 's'}: nothing to do; "
        "give more --epochs to train it further"
    )
