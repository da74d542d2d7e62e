"""`sweep`: keep the workers busy until every trial is done, then compare the settings."""

import fcntl
import json
import signal
import statistics
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any

from natgrad import config
from natgrad.errors import InputError
from natgrad.records import folder
from natgrad.sweep import plan as plans
from natgrad.sweep.plan import Plan, Setting
from natgrad.sweep.pool import Pool, Trial, cores
from natgrad.sweep.search import Search
from natgrad.sweep.table import compare, judged, write
from natgrad.training.signals import Interrupted

Say = Callable[[str], None]


def sweep(
    file: str | Path,
    *,
    workers: int | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    say: Say | None = None,
) -> dict[str, Any]:
    """Train every setting of a TOML file with every seed, and compare them on validation data.

    Trials are run folders in `out` (by default `sweeps/<name of the file>`); those that are finished are
    not trained again. `workers` trainings run at a time, each on one core (by default all cores). The result
    has the settings, best first, and the trials that failed.

    Example:
        found = natgrad.sweep.sweep("rates.toml", workers=2)
        found["settings"][0]  # the setting with the best validation likelihood
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers: expected at least 1, got {workers}")
    plan = plans.read(file, settings or {})
    place = Path(out) if out is not None else Path("sweeps") / Path(file).stem
    with _claimed(place) as record, _stoppable(place):
        going = Sweep(plan, place, record, say or (lambda line: None))
        going.go(workers or len(cores()))
        return write(place, plan.section, compare(plan.section, going.settings, place), going.failed)


class Sweep:
    """A sweep under way: its settings so far, and what has become of its trials."""

    def __init__(self, plan: Plan, place: Path, record: IO[str], say: Say) -> None:
        self.plan, self.place, self.record, self.say = plan, place, record, say
        self.search = None
        self.settings = plan.settings
        if plan.space:
            self.search = Search(plan.space, plan.section.search_seed, place / "search.jsonl")
            self.settings = [plan.fixed | chosen for chosen in self.search.done]
        self.finished = _finished(record, place)
        self.failed: dict[str, str] = {}
        self.count, self.left = 0, Counter[int]()

    def go(self, workers: int) -> None:
        """Train what is not finished."""
        source = self._searched(self.search) if self.search is not None else self._gridded()
        with Pool(workers, self.place) as pool:
            while True:
                while pool.free and (trial := next(source, None)) is not None:
                    if trial.name in self.finished:
                        self._settle(trial, None)
                    else:
                        pool.submit(trial)
                if not pool.busy:
                    return
                for trial, error in pool.finished():
                    self._note(trial, error)

    def _gridded(self) -> Iterator[Trial]:
        """The first seed of all settings first: a sweep half done can be compared."""
        for seed in self.plan.section.seeds:
            for number in range(len(self.settings)):
                yield self._trial(number, seed)

    def _searched(self, search: Search) -> Iterator[Trial]:
        """A setting is chosen when a worker is free for it, knowing all that is known by then."""
        while len(self.settings) < (self.plan.section.trials or 0):
            self.settings.append(self.plan.fixed | search.ask())
            for seed in self.plan.section.seeds:
                yield self._trial(len(self.settings) - 1, seed)

    def _trial(self, number: int, seed: int) -> Trial:
        settings = plans.resolved(self.settings[number], seed)
        return Trial(plans.name_of(settings), settings.model_dump(mode="json", exclude_none=True), number)

    def _note(self, trial: Trial, error: str | None) -> None:
        """Write down how a trial ended."""
        self.record.write(folder.json_line({"trial": trial.name, "error": error}) + "\n")
        self.record.flush()
        self._settle(trial, error)

    def _settle(self, trial: Trial, error: str | None) -> None:
        """Tell people, and the search when all seeds of a setting are done."""
        self.count += 1
        self.left[trial.setting] += 1
        row = None if error else judged(self.place / trial.name, self.plan.section.objective)
        if error:
            self.failed[trial.name] = error
        value = "failed: " + error if error else _figures(row)
        total = len(self.plan.section.seeds) * (self.plan.section.trials or len(self.settings))
        again = "  (was finished)" if trial.name in self.finished else ""
        self.say(f"[{self.count}/{total}] {trial.name}  {value}{again}")
        if self.search is not None and self.left[trial.setting] == len(self.plan.section.seeds):
            self._tell(self.search, self.settings[trial.setting])

    def _tell(self, search: Search, setting: Setting) -> None:
        names = [plans.name_of(plans.resolved(setting, seed)) for seed in self.plan.section.seeds]
        rows = [
            None if name in self.failed else judged(self.place / name, self.plan.section.objective)
            for name in names
        ]
        values = [row["valid_ll"] for row in rows if row is not None]
        chosen = {name: setting[name] for name in self.plan.space}
        search.tell(chosen, statistics.mean(values) if len(values) == len(names) else None)


def _figures(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "no finite validation likelihood"
    return f"valid LL {row['valid_ll']:.3f}  test LL {row['test_ll']:.3f}  {row['seconds']:.1f} s"


@contextmanager
def _claimed(place: Path) -> Iterator[IO[str]]:
    """The sweep's folder and its record of trials, held by this process alone."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        record = (place / "trials.jsonl").open("a+", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the sweep to {place}: {error.strerror}; give another --out") from None
    with record:
        try:
            fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"another sweep is at work in {place}; wait for it, or give another --out"
            ) from None
        yield record


@contextmanager
def _stoppable(place: Path) -> Iterator[None]:
    """An interrupt or a SIGTERM stops the workers, which save their states."""

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        raise Interrupted(f"interrupted; the same command goes on with {place}", number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _finished(record: IO[str], place: Path) -> set[str]:
    """Trials whose last line says that they are done, and whose folders are there."""
    record.seek(0)
    ended: dict[str, Any] = {}
    lines = record.read()
    if lines and not lines.endswith("\n"):
        record.write("\n")  # after a line cut off by a kill
    for line in lines.splitlines():
        try:
            row = json.loads(line)
            ended[row["trial"]] = row["error"]
        except (ValueError, KeyError, TypeError):
            continue
    return {
        name for name, error in ended.items() if error is None and (place / name / "trace.jsonl").exists()
    }


def plan_of(file: str | Path, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The trials that a file asks for, without training any."""
    plan = plans.read(file, settings)
    if plan.space:
        shown = {
            name: part if isinstance(part, list) else part.model_dump() for name, part in plan.space.items()
        }
        return [{"search": shown, "trials": plan.section.trials, "seeds": list(plan.section.seeds)}]
    found: list[config.Config] = [
        plans.resolved(each, seed) for each in plan.settings for seed in plan.section.seeds
    ]
    return [
        {"trial": plans.name_of(settings), "config": settings.model_dump(mode="json")} for settings in found
    ]
