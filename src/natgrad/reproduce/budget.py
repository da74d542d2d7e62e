"""How many epochs fit into some minutes, from the seconds that epochs took."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from natgrad.sweep.continued import recorded_lengths
from natgrad.sweep.plan import Candidate
from natgrad.sweep.record import TrialRecord

ROUND = (1, 1.5, 2, 3, 5, 7)  # epochs are these times a power of ten: equal budgets make equal trainings


def measured_seconds(record: TrialRecord, candidate: Candidate) -> float | None:
    """Seconds of an epoch of a candidate, from its longest recorded training; None where there is none."""
    lengths: Mapping[int, Any] = {}
    for seed in candidate.seeds:
        lengths = recorded_lengths(record, candidate.setting, seed) or lengths
    rows = lengths[max(lengths)]["rows"] if lengths else []
    last = rows[-1] if rows else {}
    return last["seconds"] / last["epoch"] if last.get("epoch") else None


def trials_of(candidates: Sequence[Candidate], seeds: int) -> list[int]:
    """How many trials of every candidate there will be, winners spread over their variants."""
    rivals = Counter(each.variant for each in candidates)
    return [1 + math.ceil((seeds - 1) / rivals[each.variant]) for each in candidates]


def unmeasured(record: TrialRecord, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates of which no seconds are known: never trained, or failed."""
    return [each for each in candidates if measured_seconds(record, each) is None]


def total_seconds(record: TrialRecord, candidates: Sequence[Candidate], seeds: int) -> float:
    """Seconds of one epoch of all trials together; those that were not measured take none."""
    each = [measured_seconds(record, candidate) or 0.0 for candidate in candidates]
    return sum(map(lambda seconds, times: seconds * times, each, trials_of(candidates, seeds)))


def epochs_within(minutes: float, seconds: float, workers: int, most: int) -> int:
    """A round number of epochs that take at most so many minutes; one at least.

    >>> epochs_within(60, 40.0, 2, 2000), epochs_within(1, 1000.0, 1, 500), epochs_within(1e6, 1.0, 1, 500)
    (150, 1, 500)
    """
    free = 60 * minutes * workers / max(seconds, 1e-9)
    if free >= most:
        return most
    powers = range(math.floor(math.log10(max(free, 1))) + 1)
    round_ones = (int(part * 10**power) for power in powers for part in ROUND if part * 10**power <= free)
    return max([1, *round_ones])
