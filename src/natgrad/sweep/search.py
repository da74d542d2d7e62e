"""A search over settings by optuna: what to try next, given the validation likelihoods so far.

Every setting that was asked for, and its value when it is known, is a line of `search.jsonl`: a search that
was stopped continues with what it had under way, and knows what it had found.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from natgrad.errors import InputError
from natgrad.sweep.plan import Range, Setting


class SettingSearch:
    """Asks for settings and is told their values."""

    def __init__(self, space: Mapping[str, list[Any] | Range], seed: int, record: Path) -> None:
        optuna = import_optuna("sweep.trials: a search", "give lists")
        self.record, self.space = record, space
        self.torn = record.exists() and not record.read_bytes().endswith(b"\n")  # the last line, by a kill
        self.distributions = {name: distribution(optuna, part) for name, part in space.items()}
        asked, values = _read(record)
        known = [key for key in asked if self._fits(json.loads(key))]
        sampler = optuna.samplers.TPESampler(seed=seed + len(known))  # not the same numbers again
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.waiting = [key for key in known if values.get(key) is None]  # under way, or failed: tried again
        self.done: list[Setting] = []
        for params, value in ((json.loads(key), values[key]) for key in known if values.get(key) is not None):
            found = optuna.trial.create_trial(params=params, distributions=self.distributions, value=value)
            self.study.add_trial(found)
            self.done.append(self._setting(params))
        self.trials: dict[str, Any] = {}
        self.failed = optuna.trial.TrialState.FAIL

    def ask(self) -> Setting:
        """The next setting to try: one that was under way before, or a new one."""
        if self.waiting:
            self.study.enqueue_trial(json.loads(self.waiting.pop(0)))
        trial = self.study.ask(self.distributions)
        key = json.dumps(trial.params, sort_keys=True)
        self.trials[key] = trial
        self._note({"asked": trial.params})
        return self._setting(trial.params)

    def tell(self, setting: Setting, value: float | None) -> None:
        """The value of a setting that was asked for; None if it failed."""
        params = {name: _encoded(self.space[name], setting[name]) for name in self.space}
        trial = self.trials.pop(json.dumps(params, sort_keys=True), None)
        if trial is None:
            return
        self.study.tell(trial, value, state=self.failed if value is None else None)
        self._note({"told": params, "value": value})

    def _setting(self, params: Mapping[str, Any]) -> Setting:
        return {name: decoded(self.space[name], params[name]) for name in self.space}

    def _fits(self, params: Mapping[str, Any]) -> bool:
        """Whether a recorded setting belongs to this space, which may have been changed since."""
        return set(params) == set(self.space) and all(
            _contains(part, params[name]) for name, part in self.space.items()
        )

    def _note(self, row: Mapping[str, Any]) -> None:
        with self.record.open("a", encoding="utf-8") as stream:
            stream.write("\n" * self.torn + json.dumps(row, sort_keys=True) + "\n")
        self.torn = False


def _read(record: Path) -> tuple[list[str], dict[str, float | None]]:
    asked: dict[str, None] = {}
    values: dict[str, float | None] = {}
    for line in record.read_text("utf-8").splitlines() if record.exists() else ():
        try:
            row = json.loads(line)
            key = json.dumps(row.get("asked", row.get("told")), sort_keys=True)
        except (ValueError, AttributeError):
            continue  # cut off by a kill
        asked[key] = None
        if "told" in row:
            values[key] = row.get("value")
    return list(asked), values


def distribution(optuna: Any, part: list[Any] | Range) -> Any:
    """What optuna draws a setting from."""
    if not isinstance(part, Range):
        return optuna.distributions.CategoricalDistribution([json.dumps(value) for value in part])
    kinds = optuna.distributions
    if isinstance(part.low, int) and isinstance(part.high, int):
        return kinds.IntDistribution(part.low, part.high, log=part.log)
    return kinds.FloatDistribution(part.low, part.high, log=part.log)


def _encoded(part: list[Any] | Range, value: Any) -> Any:
    return value if isinstance(part, Range) else json.dumps(value)


def decoded(part: list[Any] | Range, value: Any) -> Any:
    """A setting's value, from what optuna drew."""
    return value if isinstance(part, Range) else json.loads(value)


def _contains(part: list[Any] | Range, value: Any) -> bool:
    if isinstance(part, Range):
        return isinstance(value, int | float) and part.low <= value <= part.high
    return value in [json.dumps(inner) for inner in part]


def import_optuna(what: str, instead: str) -> Any:
    """Optuna, or what needs it and what to do without it."""
    try:
        import optuna
    except ImportError:
        raise InputError(f"{what} needs optuna, which is missing; pip install optuna, or {instead}") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
