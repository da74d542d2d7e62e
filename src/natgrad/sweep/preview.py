"""What a file asks for, without training any of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from natgrad.sweep import checks
from natgrad.sweep import plan as plans
from natgrad.sweep import record as records
from natgrad.sweep.compare import tried, varied
from natgrad.sweep.plan import Candidate, SweepPlan, SweepSection
from natgrad.sweep.run import places, untrained


def preview(
    file: str | Path,
    settings: Mapping[str, Any],
    *,
    out: str | Path | None = None,
    record: str | Path | None = None,
) -> dict[str, Any]:
    """What varies in every variant, the trials, which of them are recorded, and the seeds that confirm."""
    plan = plans.read_plan(file, settings)
    known = records.read_record(places(file, out, record)[1], plan.section)
    checks.check_candidates(plan.section, untrained(plan, known))
    confirm = list(plan.section.confirm)
    if plan.space:
        search = _search(plan)
        total = search["trials"] * len(search["seeds"])
        found = {"varies": {"": search["search"]}, "total": total, "recorded": 0, "trials": [search]}
        return found | {"confirm": confirm}
    names = varied([each.setting for each in plan.candidates])
    trials = [
        _trial(plan.section, each, seed, names) | {"recorded": known.rows(each, seed) is not None}
        for each in plan.candidates
        for seed in each.seeds
    ]
    recorded = sum(trial["recorded"] for trial in trials)
    varies = {each.variant: tried(plan.candidates, each.variant) for each in plan.candidates}
    found = {"varies": varies, "total": len(trials), "recorded": recorded, "trials": trials}
    return found | {"confirm": confirm}


def _search(plan: SweepPlan) -> dict[str, Any]:
    shown = {name: part if isinstance(part, list) else part.model_dump() for name, part in plan.space.items()}
    return {"search": shown, "trials": plan.section.trials, "seeds": list(plan.section.seeds)}


def _trial(section: SweepSection, candidate: Candidate, seed: int, names: Sequence[str]) -> dict[str, Any]:
    settings = plans.resolved(candidate.setting, seed, section.seeded)
    return {
        "trial": plans.name_of(settings),
        "variant": candidate.variant,
        "setting": {name: candidate.setting[name] for name in names if name in candidate.setting},
        "config": settings.model_dump(mode="json"),
    }
