"""Which setting of every variant is best, by validation data only; test is never looked at."""

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from natgrad.models import registry
from natgrad.sweep.plan import Candidate, SweepSection
from natgrad.sweep.record import TraceRows, TrialRecord


class Results(NamedTuple):
    """What was compared by what, and what is known of it."""

    section: SweepSection
    candidates: Sequence[Candidate]
    record: TrialRecord


class BestCandidate(NamedTuple):
    """The best candidate of a variant, by its number, and the seeds that its figures are means over.

    `confirmed` says that these seeds had no part in the choice; `edge` names the settings whose best value is
    the smallest or the largest that was tried.
    """

    number: int
    seeds: tuple[int, ...]
    confirmed: bool
    edge: tuple[str, ...]


def deciding_row(rows: TraceRows | None, section: SweepSection) -> dict[str, Any] | None:
    """The row of a trial that counts: the last, or the best on validation; None if none is finite."""
    finite = [row for row in rows or () if is_number(row.get(section.criterion))]
    if not finite or section.objective == "last":
        return finite[-1] if finite else None
    return max(finite, key=lambda row: score(section, row[section.criterion]))


def score(section: SweepSection, value: float | None) -> float:
    """How good a value of the criterion is: more is better, whichever way the column goes."""
    if value is None:
        return -math.inf
    return value if registry.is_higher_better(section.criterion) else -value


def winner(results: Results, variant: str) -> int | None:
    """The number of a variant's best candidate, None if all have failed.

    Candidates are compared by their means over the seeds that all of them have; one that failed with some of
    these comes after all that did not.
    """
    section, candidates, record = results
    members = [number for number, each in enumerate(candidates) if each.variant == variant]
    common = set.intersection(*({*candidates[number].seeds} for number in members))

    def quality(number: int) -> tuple[int, float]:
        seeds = common or candidates[number].seeds
        found = [deciding_row(record.rows(candidates[number], seed), section) for seed in seeds]
        values = [score(section, row[section.criterion]) for row in found if row is not None]
        return len(values), statistics.fmean(values) if values else -math.inf

    best = max(members, key=quality)
    return best if quality(best)[0] else None


def best_candidates(results: Results) -> list[BestCandidate]:
    """The best candidate of every variant that has any, in the order of the variants."""
    section, candidates, record = results
    found = []
    for variant in dict.fromkeys(each.variant for each in candidates):
        number = winner(results, variant)
        if number is None:
            continue
        best = candidates[number]
        confirmed = tuple(seed for seed in section.confirm if record.rows(best, seed) is not None)
        edge = () if section.trials else edges(candidates, number)
        found.append(BestCandidate(number, confirmed or best.seeds, bool(confirmed), edge))
    return found


def edges(candidates: Sequence[Candidate], number: int) -> tuple[str, ...]:
    """The numbers among a candidate's settings that are the smallest or the largest of its variant's."""
    best = candidates[number]
    members = [each.setting for each in candidates if each.variant == best.variant]
    found = []
    for name, value in best.setting.items():
        values = {each[name] for each in members if is_number(each.get(name))}
        if len(values) > 1 and value in (min(values), max(values)):
            found.append(name)
    return tuple(found)


def is_number(value: Any) -> bool:
    """A finite number, and not a yes or no."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
