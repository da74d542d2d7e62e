"""What a sweep's trials lack, found before any of them runs."""

from collections.abc import Iterable
from typing import Any

from natgrad import config
from natgrad.data import load_settings
from natgrad.errors import InputError
from natgrad.models import registry
from natgrad.sweep.plan import Candidate, SweepSection, resolved
from natgrad.training.checks import check_training as check_limits


def check_candidates(section: SweepSection, candidates: Iterable[Candidate]) -> None:
    """Every candidate fits its data and has the columns that are asked for; data are read once."""
    known: dict[str, Any] = {}
    for candidate in candidates:
        settings = resolved(candidate.setting, candidate.seeds[-1], section.seeded)
        _check_columns(section, settings)
        chosen = settings.data
        if (key := chosen.model_dump_json()) not in known:
            known[key] = load_settings(chosen)
        check_limits(settings, known[key])


def comparable_columns(settings: config.Config) -> list[str]:
    """The columns of the trace by which settings can be compared or which can be shown."""
    every = (*registry.spec_of(settings.model.kind).columns, *registry.COLUMNS)
    return [column.name for column in every if column.name.startswith(("valid_", "test_"))]


def _check_columns(section: SweepSection, settings: config.Config) -> None:
    known, kind = comparable_columns(settings), settings.model.kind
    criteria = [name for name in known if name.startswith("valid_")]  # test data choose nothing
    for key, name, allowed in [
        ("criterion", section.criterion, criteria),
        *(("columns", name, known) for name in section.columns),
    ]:
        if name not in allowed:
            raise InputError(
                f"sweep.{key}: expected what a model of kind {kind} is measured by, got {name}; "
                f"give one of {', '.join(allowed)}"
            )
