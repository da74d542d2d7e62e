"""Settings in numbers: a line for each, means and standard deviations over its seeds."""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from natgrad.sweep import plan as plans
from natgrad.sweep.choice import Results, best_candidates, deciding_row, is_number, score
from natgrad.sweep.plan import Candidate, SweepSection
from natgrad.sweep.values import Setting

_Line = dict[str, Any]


def ranked(results: Results) -> list[tuple[_Line, Candidate]]:
    """Every candidate over the seeds that choose, best first; those that failed with a seed come last."""
    names = varied([each.setting for each in results.candidates])
    lines = [(_line(results, each, each.seeds, names), each) for each in results.candidates]
    incomplete = lambda line: line["seeds"] < len(line["runs"])  # noqa: E731
    return sorted(lines, key=lambda pair: (incomplete(pair[0]), -_order(results.section, pair[0])))


def best_lines(results: Results) -> list[_Line]:
    """The best candidate of every variant, best first: over the seeds that confirm it, if there are any."""
    names = varied([each.setting for each in results.candidates])
    lines = [
        _line(results, results.candidates[each.number], each.seeds, names)
        | {"tried": list(tried(results.candidates, results.candidates[each.number].variant))}
        | {"confirmed": each.confirmed, "edge": list(each.edge)}
        for each in best_candidates(results)
    ]
    return sorted(lines, key=lambda line: -_order(results.section, line))


def failed(results: Results) -> dict[str, str]:
    """Why trials failed, by their names."""
    found = {}
    for each in results.candidates:
        for seed in (*each.seeds, *results.section.confirm):
            if error := (results.record.line(each, seed) or {}).get("error"):
                found[_run(results.section, each, seed)] = error
    return found


def varied(settings: Sequence[Setting]) -> list[str]:
    """The names of what differs between settings."""
    names = dict.fromkeys(name for setting in settings for name in setting)
    return [name for name in names if len({json.dumps(each.get(name)) for each in settings}) > 1]


def tried(candidates: Sequence[Candidate], variant: str) -> dict[str, list[Any]]:
    """The values of all that a variant tries several of."""
    settings = [each.setting for each in candidates if each.variant == variant]
    found = {name: [json.dumps(each[name]) for each in settings if name in each] for name in varied(settings)}
    return {name: [json.loads(text) for text in dict.fromkeys(texts)] for name, texts in found.items()}


def _line(results: Results, candidate: Candidate, seeds: Sequence[int], names: Sequence[str]) -> _Line:
    section, _, record = results
    found = [deciding_row(record.rows(candidate, seed), section) for seed in seeds]
    rows = [row for row in found if row is not None]
    shown = {name: candidate.setting[name] for name in names if name in candidate.setting}
    cut = sum(1 for row in rows if row.get("divergences"))
    start = {"variant": candidate.variant, "setting": shown, "seeds": len(rows), "cut": cut}
    return {**start, **_means(section, rows), "runs": [_run(section, candidate, seed) for seed in seeds]}


def _run(section: SweepSection, candidate: Candidate, seed: int) -> str:
    return plans.name_of(plans.resolved(candidate.setting, seed, section.seeded))


def _means(section: SweepSection, rows: Sequence[Mapping[str, Any]]) -> _Line:
    """Means over seeds, and standard deviations of the columns where there are several seeds."""
    found: _Line = {}
    for name in dict.fromkeys((section.criterion, *section.columns, "epoch", "seconds")):
        values = [row[name] for row in rows if is_number(row.get(name))]
        found[name] = statistics.fmean(values) if values else None
        if name not in ("epoch", "seconds"):
            found[f"{name}_sd"] = statistics.stdev(values) if len(values) > 1 else None
    return found


def _order(section: SweepSection, line: Mapping[str, Any]) -> float:
    return score(section, line[section.criterion])
