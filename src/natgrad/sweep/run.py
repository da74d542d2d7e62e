"""`sweep`: keep the workers busy until every trial is done, then compare the settings."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from natgrad.errors import InputError
from natgrad.records import folder
from natgrad.sweep import checks
from natgrad.sweep import plan as plans
from natgrad.sweep import record as records
from natgrad.sweep.choice import Results, best_candidates, deciding_row, score
from natgrad.sweep.claims import claimed, stoppable
from natgrad.sweep.continued import continued
from natgrad.sweep.plan import Candidate, SweepPlan, SweepSection
from natgrad.sweep.pool import Ending, Pool, Trial, cores
from natgrad.sweep.record import TraceRows, TrialRecord
from natgrad.sweep.search import SettingSearch
from natgrad.sweep.table import title, write_tables, written
from natgrad.sweep.tickets import TicketStore
from natgrad.sweep.values import Setting

Say = Callable[[str], None]


def sweep(
    file: str | Path,
    *,
    workers: int | None = None,
    out: str | Path | None = None,
    record: str | Path | None = None,
    compare_only: bool = False,
    settings: Mapping[str, Any] | None = None,
    say: Say | None = None,
    join: str | Path | None = None,
) -> dict[str, Any]:
    """Train every setting of a TOML file with every seed, and compare them on validation data.

    Trials are run folders in `out` (by default `sweeps/<name of the file>`). What became of them is written
    to `record` (by default `trials.jsonl` in `out`); those that it has the figures of are not trained again,
    and with `compare_only` none is. `workers` trainings run at a time, each on one core (by default all
    cores). With `join`, the address of a database or the path of a journal, any number of such calls on any
    hosts share the trials (`natgrad.sweep.join`). The result has the best setting of every variant, all
    settings, best first, and the trials that failed.

    Example:
        found = natgrad.sweep.sweep("rates.toml", workers=2)
        found["settings"][0]  # the setting with the best validation likelihood
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers: expected at least 1, got {workers}")
    plan = plans.read_plan(file, settings or {})
    place, path = places(file, out, record)
    if not compare_only:
        checks.check_candidates(plan.section, untrained(plan, records.read_record(path, plan.section)))
    if join is not None:
        from natgrad.sweep.join import run_joined

        tickets = TicketStore(str(join), Path(file).stem, plan)
        busy = 0 if compare_only else workers or len(cores())
        return run_joined(plan, tickets, place, path, workers=busy, say=say or (lambda line: None))
    with claimed(place, None if record is None else path) as stream, stoppable(place):
        going = Sweep(plan, place, records.record_in(stream, plan.section), say or (lambda line: None))
        if not compare_only:
            going.go(workers or len(cores()))
        return write_tables(place, going.results)


def places(file: str | Path, out: str | Path | None, record: str | Path | None) -> tuple[Path, Path]:
    """The folder of a sweep and the file of its record."""
    place = Path(out) if out is not None else Path("sweeps") / Path(file).stem
    return place, Path(record) if record is not None else place / "trials.jsonl"


def untrained(plan: SweepPlan, record: TrialRecord) -> list[Candidate]:
    """The candidates that a record does not have all figures of."""
    lacks = lambda each, seeds: any(record.rows(each, seed) is None for seed in seeds)  # noqa: E731
    results = Results(plan.section, plan.candidates, record)
    best = [plan.candidates[each.number] for each in best_candidates(results)]
    return [each for each in plan.candidates if lacks(each, each.seeds)] + [
        each for each in best if lacks(each, plan.section.confirm)
    ]


def total(plan: SweepPlan) -> int:
    """How many trials a plan makes."""
    section, variants = plan.section, {each.variant for each in plan.candidates}
    confirming = len(section.confirm) * len(variants)
    if section.trials is not None:
        return section.trials * len(section.seeds) + confirming
    return sum(len(each.seeds) for each in plan.candidates) + confirming


class Sweep:
    """A sweep under way: its candidates so far, and what has become of their trials."""

    def __init__(
        self,
        plan: SweepPlan,
        place: Path,
        record: TrialRecord,
        say: Say,
        evaluate: dict[str, Any] | None = None,
    ) -> None:
        self.plan, self.place, self.record, self.say = plan, place, record, say
        self.evaluate = evaluate  # arguments of the evaluation of every trained model
        self.search, self.candidates = None, plan.candidates
        self.asked: list[Setting] = []  # by a search, for each candidate
        if plan.space:
            self.search = SettingSearch(plan.space, plan.section.search_seed, place / "search.jsonl")
            self.asked = list(self.search.done)
            self.candidates = list(map(plan.candidate, self.asked))
        self.total = total(plan)
        self.count, self.left = 0, Counter[int]()

    @property
    def results(self) -> Results:
        """What is known so far."""
        return Results(self.plan.section, self.candidates, self.record)

    def go(self, workers: int) -> None:
        """Train what is not recorded, then the best of every variant with the seeds that confirm it."""
        with Pool(workers, self.place) as pool:
            self._train(pool, self._searched(self.search) if self.search is not None else self._gridded())
            self._train(pool, self._confirming())

    def _train(self, pool: Pool, source: Iterator[Trial]) -> None:
        """Give trials to workers until there are none left."""
        same: list[Trial] = []  # as one that is under way, of another variant
        while True:
            while pool.free and (trial := next(source, None)) is not None:
                if self.record.rows(self.candidates[trial.candidate], trial.seed) is not None:
                    self._settle(trial, "  (was finished)")
                elif any(trial.name == other.name for _, other in pool.busy.values()):
                    same.append(trial)
                else:
                    pool.submit(trial)
            if not pool.busy:
                break
            for trial, ending in pool.finished():
                self._note(trial, ending)
        if same:
            self._train(pool, iter(same))

    def _gridded(self) -> Iterator[Trial]:
        """The first seed of all candidates first: a sweep half done can be compared."""
        for seed in dict.fromkeys(seed for each in self.candidates for seed in each.seeds):
            for number, candidate in enumerate(self.candidates):
                if seed in candidate.seeds:
                    yield self._trial(number, seed)

    def _searched(self, search: SettingSearch) -> Iterator[Trial]:
        """A setting is chosen when a worker is free for it, knowing all that is known by then."""
        while len(self.candidates) < (self.plan.section.trials or 0):
            self.asked.append(search.ask())
            self.candidates.append(self.plan.candidate(self.asked[-1]))
            for seed in self.plan.section.seeds:
                yield self._trial(len(self.candidates) - 1, seed)

    def _confirming(self) -> Iterator[Trial]:
        best = best_candidates(self.results)
        for seed in self.plan.section.confirm:
            for choice in best:
                yield self._trial(choice.number, seed)

    def _trial(self, number: int, seed: int) -> Trial:
        setting = self.candidates[number].setting
        settings = plans.resolved(setting, seed, self.plan.section.seeded)
        complete = settings.model_dump(mode="json", exclude_none=True)
        shorter = continued(self.place, self.record, setting, seed)
        return Trial(plans.name_of(settings), complete, number, seed, shorter, self.evaluate)

    def _note(self, trial: Trial, ending: Ending) -> None:
        """Write down how a trial ended."""
        found: dict[str, Any] = {"error": ending.error}
        if ending.error is None:
            found = {"rows": records.compared_figures(folder.trace(self.place / trial.name))}
            told = {"evaluated": ending.evaluated, "warning": ending.warning}
            found |= {name: value for name, value in told.items() if value is not None}
        candidate = self.candidates[trial.candidate]
        self.record.add(candidate, trial.seed, found | {"wall_seconds": ending.seconds})
        self._settle(trial)

    def _settle(self, trial: Trial, remark: str = "") -> None:
        """Tell people, and the search when all seeds of a setting are done."""
        candidate, section = self.candidates[trial.candidate], self.plan.section
        self.count += 1
        self.left[trial.candidate] += 1
        line = self.record.line(candidate, trial.seed) or {}
        said = f"failed: {line['error']}" if line.get("error") else figures_line(section, line.get("rows"))
        if line.get("warning"):
            remark += f"  warning: {line['warning']}"
        self.say(f"[{self.count}/{self.total}] {trial.name}  {said}{remark}")
        if self.search is not None and self.left[trial.candidate] == len(section.seeds):
            self._tell(self.search, trial.candidate)

    def _tell(self, search: SettingSearch, number: int) -> None:
        search.tell(self.asked[number], self.mean_score(number, self.candidates[number].seeds))

    def mean_score(self, number: int, seeds: Sequence[int]) -> float | None:
        """How good a candidate is with these seeds; None if a training failed."""
        candidate, section = self.candidates[number], self.plan.section
        rows = [deciding_row(self.record.rows(candidate, seed), section) for seed in seeds]
        values = [score(section, row[section.criterion]) for row in rows if row is not None]
        return statistics.mean(values) if len(values) == len(rows) else None


def figures_line(section: SweepSection, rows: TraceRows | None) -> str:
    """The figures of a trial in a line."""
    row = deciding_row(rows, section)
    if row is None:
        return f"no finite {title(section.criterion)}"
    shown = [f"{title(name)} {written(name, row.get(name))}" for name in section.columns]
    return "  ".join([*shown, f"{row['seconds']:.1f} s"])
