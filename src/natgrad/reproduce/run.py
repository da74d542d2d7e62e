"""`reproduce_paper`: train what a paper's table or figure needs, as far as a budget goes, and compare."""

import json
from pathlib import Path
from typing import Any

from natgrad import writing
from natgrad.records.folder import json_line
from natgrad.reproduce.budget import epochs_within, measured_seconds, total_seconds, trials_of, unmeasured
from natgrad.reproduce.figure import draw_course
from natgrad.reproduce.files import Reproduction, known_reproductions, read_reproduction
from natgrad.reproduce.limits import Budget
from natgrad.reproduce.plans import data_sets, missing_files, plan_for, with_data
from natgrad.reproduce.table import comparison_with_paper, reached
from natgrad.sweep import checks
from natgrad.sweep import record as records
from natgrad.sweep.claims import claimed, stoppable
from natgrad.sweep.record import TrialRecord
from natgrad.sweep.run import Say, Sweep, untrained

EVALUATED = 10  # a training of at least the paper's epochs by this number is evaluated with many samples


def reproduce_paper(
    name: str | Path,
    budget: Budget = Budget(),  # noqa: B008
    *,
    out: str | Path | None = None,
    say: Say | None = None,
) -> dict[str, Any]:
    """Train the settings of a paper's table or figure, and put what it claims beside what was obtained.

    Args:
        name: one of `known_reproductions()`, or a TOML file of one's own.
        budget: how long, with how many seeds, how many trainings at a time.
        out: the folder of trials and record; by default reproductions/<name>.
        say: told a line for every trial.
    """
    found, tell = read_reproduction(name), say or (lambda line: None)
    place, length = place_of(found, out), budget.checked().epochs or 1
    plan, gone = with_data(plan_for(found, length, budget.numbers))
    if gone:
        tell(gone)
    known = records.read_record(place / "trials.jsonl", plan.section)
    checks.check_candidates(plan.section, untrained(plan, known))
    with claimed(place, None) as stream, stoppable(place):
        record = records.record_in(stream, plan.section)
        if budget.epochs is None:
            length = _budgeted(found, record, place, budget, tell)
            plan, _ = with_data(plan_for(found, length, budget.numbers))
        long = found.section.samples and EVALUATED * length >= found.section.epochs
        evaluate = {"samples": found.section.samples} if long else None
        Sweep(plan, place, record, tell, evaluate).go(budget.busy)
        own = reached(found, record)
        table = comparison_with_paper(found, own)
        writing.write(place / "table.json", json_line(table) + "\n")
        picture = place / "curves.png" if own.results else None
        if picture is not None:
            draw_course(picture, own.results, found.section.claims)
    told = {"trained_epochs": length, "missing": gone, "picture": picture and str(picture)}
    return _told(found, place) | told | table


def reproduction_preview(
    name: str | Path,
    budget: Budget = Budget(),  # noqa: B008
    *,
    out: str | Path | None = None,
) -> dict[str, Any]:
    """What would be trained, and about how long it takes: as measured, or as the paper says."""
    found = read_reproduction(name)
    place, length = place_of(found, out), budget.checked().epochs
    plan, gone = with_data(plan_for(found, length or 1, budget.numbers))
    record = records.read_record(place / "trials.jsonl", plan.section)
    claims = [claim for claim in found.section.claims if claim.seconds is not None]
    published = {each: claim.seconds for claim in claims for each in claim.variants}
    lines, total = [], 0.0
    for candidate, times in zip(plan.candidates, trials_of(plan.candidates, budget.seeds), strict=True):
        own = measured_seconds(record, candidate)
        seconds = published.get(candidate.variant) if own is None else own
        total += times * (seconds or 0.0)
        line = {"variant": candidate.variant, "setting": candidate.setting, "trials": times}
        lines.append(line | {"epoch_seconds": seconds, "measured": own is not None})
    known = all(line["epoch_seconds"] is not None for line in lines)
    if length is None and known:
        length = epochs_within(budget.time, total, budget.busy, found.section.epochs)
    estimate = round(total * length / budget.busy / 60, 1) if known and length is not None else None
    return _told(found, place) | {"epochs": length, "minutes": estimate, "missing": gone, "trials": lines}


def listed_reproductions() -> list[dict[str, Any]]:
    """Every reproduction of the package: where its claims stand, what it shows, which data files it lacks."""
    lines = []
    for name in known_reproductions():
        found = read_reproduction(name)
        sets = data_sets(found)
        gone = sorted({file for each in sets for file in missing_files(*each)})
        names = list(dict.fromkeys(name for name, _ in sets))
        lines.append(
            {"name": name, "place": found.section.place, "about": found.section.about}
            | {"epochs": found.section.epochs, "data": names, "missing": gone}
        )
    return lines


def place_of(found: Reproduction, out: str | Path | None) -> Path:
    """The folder of a reproduction."""
    return Path(out) if out is not None else Path("reproductions") / found.name


def _told(found: Reproduction, place: Path) -> dict[str, Any]:
    section = found.section
    told = {"reproduction": found.name, "place": section.place, "about": section.about, "out": str(place)}
    return told | ({"note": section.note} if section.note else {})


def _budgeted(found: Reproduction, record: TrialRecord, place: Path, budget: Budget, say: Say) -> int:
    """The epochs that a budget allows; the same budget again means the same epochs, and so continues them."""
    path = place / "budgets.json"
    key = f"{budget.time:g} minutes, {budget.seeds} seeds, {budget.busy} workers"
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if key in known:
        return int(known[key])
    plan, _ = with_data(plan_for(found, 1, [0]))
    if unmeasured(record, plan.candidates):
        say("an epoch of every setting, to see how long it takes")
        Sweep(plan, place, record, say).go(budget.busy)
    if failed := unmeasured(record, plan.candidates):
        names = dict.fromkeys(each.variant for each in failed)
        say(f"failed in that epoch, and not counted: settings of {', '.join(names)}")
    seconds = total_seconds(record, plan.candidates, budget.seeds)
    if not seconds:
        return 1  # all failed
    length = epochs_within(budget.time, seconds, budget.busy, found.section.epochs)
    writing.write(path, json_line(known | {key: length}) + "\n")
    estimate = seconds * length / budget.busy / 60
    say(f"{length} epochs of the paper's {found.section.epochs}: about {estimate:.0f} minutes")
    return length
