"""A training of more epochs continues a shorter one of the same settings, where no schedule is in the way."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from natgrad.models import registry
from natgrad.sweep import plan as plans
from natgrad.sweep.record import TrialRecord, identity
from natgrad.sweep.values import Setting, by_dotted_name

EPOCHS = "training.epochs"


def continued(place: Path, record: TrialRecord, setting: Setting, seed: int) -> str | None:
    """The folder of the longest shorter training, None where there is none or a schedule would differ."""
    settings = plans.resolved(setting, seed, record.seeded)
    if registry.spec_of(settings.model.kind).is_scheduled(settings):
        return None
    found = [
        (epochs, name)
        for epochs, name in _others(record, setting, seed)
        if epochs < settings.training.epochs and (place / name / "config.toml").exists()
    ]
    return max(found)[1] if found else None


def recorded_lengths(record: TrialRecord, setting: Setting, seed: int) -> dict[int, Mapping[str, Any]]:
    """The lines about a training that differ in the number of epochs only, by that number."""
    same = _without_length(setting, seed, record)
    return {
        int(epochs): line
        for line in record.known.values()
        if line.get("rows") is not None
        and (epochs := by_dotted_name(line["settings"]).get(EPOCHS)) is not None
        and line["seed"] == seed
        and _without_length(line["settings"], seed, record) == same
    }


def _others(record: TrialRecord, setting: Setting, seed: int) -> Iterator[tuple[int, str]]:
    for epochs, line in recorded_lengths(record, setting, seed).items():
        yield epochs, plans.name_of(plans.resolved(dict(line["settings"]), seed, record.seeded))


def _without_length(settings: Mapping[str, Any], seed: int, record: TrialRecord) -> str:
    given = by_dotted_name(settings)
    return identity({name: value for name, value in given.items() if name != EPOCHS}, seed, record.seeded)
