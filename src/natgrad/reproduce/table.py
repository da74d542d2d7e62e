"""Claimed beside obtained: a line for every variant and figure, made from the record alone."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from natgrad.reproduce.files import Claim, Comparison, Reproduction
from natgrad.reproduce.plans import plan_for
from natgrad.reproduce.verdicts import Obtained, judged_claim, judged_comparison, obtained
from natgrad.sweep.choice import Results, best_candidates
from natgrad.sweep.compare import failed
from natgrad.sweep.continued import EPOCHS
from natgrad.sweep.plan import Candidate, SweepSection
from natgrad.sweep.record import TrialRecord
from natgrad.sweep.table import setting_label
from natgrad.sweep.values import by_dotted_name


class VariantResult(NamedTuple):
    """The longest training of a variant that is recorded: its best setting, its trials, what is doubtful."""

    candidate: Candidate
    trials: Sequence[Mapping[str, Any]]
    section: SweepSection
    rivals: int
    tried: int
    edge: tuple[str, ...]
    confirmed: bool

    def figure(self, column: str, error: str = "") -> Obtained:
        """What was obtained of a column; its standard error may have a column of another name."""
        return obtained(self.trials, self.section, column, error or f"{column}_se")


class Reached(NamedTuple):
    """What a record has of a reproduction: the result of every variant that has one, errors, all variants."""

    results: Mapping[str, VariantResult]
    errors: Mapping[str, str]
    variants: Sequence[str]


def reached(found: Reproduction, record: TrialRecord) -> Reached:
    """The longest training of every variant."""
    lengths = {by_dotted_name(line["settings"]).get(EPOCHS) for line in record.known.values()}
    seeds = sorted({0, *(line["seed"] for line in record.known.values())})
    longest: dict[str, VariantResult] = {}
    errors: dict[str, str] = {}
    variants: dict[str, None] = {}
    for epochs in sorted((int(each) for each in lengths if each is not None), reverse=True):
        plan = plan_for(found, epochs, seeds)
        results = Results(plan.section, plan.candidates, record)
        variants |= dict.fromkeys(each.variant for each in plan.candidates)
        errors |= failed(results)
        for name, result in _results_of(results).items():
            longest.setdefault(name, result)
    return Reached(longest, errors, list(variants))


def comparison_with_paper(found: Reproduction, own: Reached) -> dict[str, Any]:
    """The table of a reproduction, with doubts and failures."""
    results = own.results
    lines = [
        _claim_line(found, claim, name, results)
        for claim in _claims(found, own.variants)
        for name in claim.variants
    ]
    told = [_comparison_line(each, results) for each in found.section.comparisons]
    return {"lines": lines, "comparisons": told, "warnings": _doubts(results), "failed": dict(own.errors)}


def _results_of(results: Results) -> dict[str, VariantResult]:
    found = {}
    for best in best_candidates(results):
        candidate = results.candidates[best.number]
        own = [each for each in results.candidates if each.variant == candidate.variant]
        rivals, tried = len(own), sum(_is_tried(results, each) for each in own)
        chosen_by = candidate.seeds if rivals == 1 else ()  # with one setting nothing was chosen
        seeds = dict.fromkeys((*chosen_by, *best.seeds))
        lines = [results.record.line(candidate, seed) for seed in seeds]
        trials = [line for line in lines if line is not None and line.get("rows") is not None]
        confirmed = best.confirmed or rivals == 1
        result = VariantResult(candidate, trials, results.section, rivals, tried, best.edge, confirmed)
        found[candidate.variant] = result
    return found


def _is_tried(results: Results, candidate: Candidate) -> bool:
    return any(results.record.line(candidate, seed) is not None for seed in candidate.seeds)


def _claims(found: Reproduction, variants: Sequence[str]) -> list[Claim]:
    """The paper's claims, and an empty one for variants of which it says nothing."""
    said = {name for claim in found.section.claims for name in claim.variants}
    silent = tuple(name for name in variants if name not in said)
    return [*found.section.claims, *([Claim(variants=silent)] if silent else [])]


def _claim_line(
    found: Reproduction, claim: Claim, name: str, results: Mapping[str, VariantResult]
) -> dict[str, Any]:
    result, epochs = results.get(name), claim.epochs or found.section.epochs
    line: dict[str, Any] = {"variant": name, "figure": claim.column, "claimed": claim.value}
    line |= {"claimed_in": claim.place or found.section.place, "claimed_epochs": epochs}
    line |= {"claimed_epoch_seconds": claim.seconds}
    if result is None:
        return (
            line
            | {"obtained": None, "error": None, "epochs": 0, "seconds": None, "seeds": 0}
            | {
                "setting": {},
                "verdict": "not run",
            }
        )
    figure = result.figure(claim.column, claim.error)
    return line | {
        "obtained": figure.value,
        "error": figure.error,
        "epochs": figure.epochs,
        "seconds": figure.seconds,
        "seeds": figure.seeds,
        "setting": result.candidate.setting,
        "verdict": judged_claim(claim.value, claim.column, figure, epochs),
    }


def _comparison_line(claim: Comparison, results: Mapping[str, VariantResult]) -> dict[str, Any]:
    names = claim.better, claim.worse
    line: dict[str, Any] = {"says": claim.says, "better": claim.better, "worse": claim.worse}
    if any(name not in results for name in names):
        return line | {"difference": None, "epochs": None, "verdict": "not run"}
    one, two = (results[name].figure(claim.column) for name in names)
    gap = None if one.value is None or two.value is None else one.value - two.value
    verdict = judged_comparison(one, two, claim.column)
    if one.epochs != two.epochs:
        verdict += ", at different epochs"
    return line | {"difference": gap, "epochs": [one.epochs, two.epochs], "verdict": verdict}


def _doubts(results: Mapping[str, VariantResult]) -> list[str]:
    """Winners at the edge of a grid, of a grid half tried, and those that no other seed confirmed."""
    edge = [
        f"{name} ({setting_label({key: result.candidate.setting[key] for key in result.edge})})"
        for name, result in results.items()
        if result.edge
    ]
    half = [
        f"{name} ({result.tried} of {result.rivals})"
        for name, result in results.items()
        if result.tried < result.rivals
    ]
    alone = [name for name, result in results.items() if not result.confirmed]
    found = {
        "At the edge of the grid": edge,
        "Not all settings tried at this length": half,
        "Of the seed that chose, not confirmed": alone,
    }
    return [f"{what}: {'; '.join(which)}." for what, which in found.items() if which]
