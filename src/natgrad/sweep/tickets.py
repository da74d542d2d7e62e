"""The trials of a shared sweep: tickets in a store, each taken by one worker at a time.

A ticket is a trial of optuna's that waits, and whoever sets it running has it. A worker that has tickets says
so again and again (a heartbeat is a count that grows). Where a count has not grown for a while, by the clock
of whoever looks, its worker is dead, and the ticket waits again. Optuna's own heartbeats need a database and
`Study.optimize`; these work in a journal too, and hosts need not agree on the time.
"""

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from natgrad.errors import InputError
from natgrad.sweep.plan import Range, SweepPlan
from natgrad.sweep.search import decoded, distribution, import_optuna
from natgrad.sweep.store import open_study, shown, talking
from natgrad.sweep.values import Setting

_BEATS = 3  # heartbeats that a worker may miss
_DEATHS = 3  # workers that may die over a ticket: it may be what kills them


class Ticket(NamedTuple):
    """A part of a sweep for one worker: trainings of a setting, which a search chooses when it is taken."""

    name: str
    variant: str
    setting: Setting | None
    seeds: tuple[int, ...]


class TakenTicket(NamedTuple):
    """A ticket in this worker's hands: its number in the store, and its setting."""

    number: int
    ticket: Ticket
    setting: Setting
    trial: Any


class TicketStore:
    """The tickets of one sweep in a store."""

    def __init__(self, address: str, name: str, plan: SweepPlan) -> None:
        self.optuna = import_optuna("join: a shared sweep", "leave out --join")
        self.address, self.space, self.search_seed = address, plan.space, plan.section.search_seed
        self.heartbeat = plan.section.heartbeat
        self.study = open_study(address, name)
        self.study.sampler = self._sampler(0)
        self.claims: dict[int, TakenTicket] = {}
        self.beats, self.beaten = 0, time.monotonic()
        self.seen: dict[int, tuple[int, float]] = {}
        with self._talking():
            self._check_plan(name, plan_identity(plan))

    def fill(self, tickets: Iterable[Ticket], *, again: bool = False) -> None:
        """Put in tickets that are not there; `again`: also those that failed, unless anyone is at work."""
        with self._talking():
            there = self._trials()
            again = again and not any(_is_open(trials) for trials in there.values())
            for ticket in tickets:
                trials = there.get(ticket.name, [])
                if not _is_open(trials) and (not _is_settled(trials) or (again and _is_failed(trials))):
                    drawn: list[dict[str, Any]] = [trial.params for trial in trials if trial.params]
                    attempt = sum("failed" in trial.user_attrs for trial in trials)
                    self._put(ticket, drawn[-1] if drawn else {}, {"attempt": attempt})

    def claim(self) -> TakenTicket | None:
        """Take a ticket that waits, if there is one."""
        with self._talking():
            while any(trial.state.name == "WAITING" for trial in self._all()):
                trial = self.study.ask()
                if (ticket := _ticket_of(trial)) is None or self._is_double(trial, ticket):
                    self.study.tell(trial, state=self._fail)
                    continue
                setting = self._drawn(trial) if ticket.setting is None else ticket.setting
                trial.set_user_attr("beat", self.beats)
                claim = self.claims[trial.number] = TakenTicket(trial.number, ticket, setting, trial)
                return claim
        return None

    def note(self, claim: TakenTicket, line: Mapping[str, Any]) -> None:
        """Write down how a training of a ticket ended: its line of the record."""
        with self._talking(), self._unless_lost(claim):
            claim.trial.set_user_attr(f"line {line['seed']}", dict(line))

    def settle(self, claim: TakenTicket, value: float | None) -> None:
        """A ticket is done, with its value; None if it failed."""
        with self._talking(), self._unless_lost(claim):
            if value is None:
                claim.trial.set_user_attr("failed", True)
            self.study.tell(claim.number, value, state=None if value is not None else self._fail)
        self.claims.pop(claim.number, None)

    def keep_up(self, tickets: Sequence[Ticket]) -> None:
        """Say that this worker lives, find those that do not, and put their tickets in again."""
        if time.monotonic() - self.beaten >= self.heartbeat:
            self.beaten, self.beats = time.monotonic(), self.beats + 1
            with self._talking():
                for claim in list(self.claims.values()):
                    with self._unless_lost(claim):
                        claim.trial.set_user_attr("beat", self.beats)
        with self._talking():
            for trial in self._all():
                if trial.state.name == "RUNNING" and trial.number not in self.claims and self._is_dead(trial):
                    self._bury(trial)
        self.fill(tickets)

    def release(self) -> None:
        """Put this worker's tickets back: it is stopping."""
        with self._talking():
            for claim in list(self.claims.values()):
                with self._unless_lost(claim):
                    self.study.tell(claim.number, state=self._fail)
                    self._put(claim.ticket, claim.trial.params, _history(claim.trial))
            self.claims.clear()

    def are_settled(self, tickets: Iterable[Ticket]) -> bool:
        """Whether all of these are done, by whomever."""
        with self._talking():
            there = self._trials()
        return all(_is_settled(there.get(ticket.name, [])) for ticket in tickets)

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the record that all workers have written down."""
        with self._talking():
            found = [trial.user_attrs for trial in self._all()]
        return [line for attrs in found for key, line in attrs.items() if key.startswith("line ")]

    def chosen(self) -> list[Setting]:
        """The settings that a search has chosen, in the order of its tickets."""
        with self._talking():
            there = self._trials()
        drawn = {name: [each.params for each in trials if each.params] for name, trials in there.items()}
        return [self._setting(drawn[name][-1]) for name in sorted(drawn, key=_order) if drawn[name]]

    def _all(self) -> list[Any]:
        return self.study.get_trials(deepcopy=False)

    def _trials(self) -> dict[str, list[Any]]:
        found = defaultdict(list)
        for trial in self._all():
            if (ticket := _ticket_of(trial)) is not None:
                found[ticket.name].append(trial)
        return found

    @property
    def _fail(self) -> Any:
        return self.optuna.trial.TrialState.FAIL

    @contextmanager
    def _talking(self) -> Iterator[None]:
        with talking(self.address):
            yield

    @contextmanager
    def _unless_lost(self, claim: TakenTicket) -> Iterator[None]:
        """Others took this worker for dead, and have its ticket: what it knows of it no longer counts."""
        from optuna.exceptions import UpdateFinishedTrialError

        try:
            yield
        except UpdateFinishedTrialError:
            self.claims.pop(claim.number, None)
        except ValueError as error:
            if "Cannot tell" not in str(error):
                raise
            self.claims.pop(claim.number, None)

    def _check_plan(self, name: str, identity: str) -> None:
        known = self.study.user_attrs.get("sweep")
        if known is None:
            self.study.set_user_attr("sweep", identity)
        elif known != identity:
            raise InputError(
                f"the store {shown(self.address)} has another sweep that is called {name}; join it with the "
                "file that began it, or give this file another name or another store"
            )

    def _put(self, ticket: Ticket, params: Mapping[str, Any], history: Mapping[str, int]) -> None:
        self.study.enqueue_trial(dict(params), user_attrs={"ticket": ticket._asdict(), **history})

    def _is_double(self, own: Any, ticket: Ticket) -> bool:
        """Whether the same attempt was put in before this one, by two workers at once, and is not lost."""
        attempt = _history(own)["attempt"]
        before = [trial for trial in self._trials()[ticket.name] if trial.number < own.number]
        same = [trial for trial in before if _history(trial)["attempt"] == attempt]
        return any(trial.state.name != "FAIL" or "failed" in trial.user_attrs for trial in same)

    def _drawn(self, trial: Any) -> Setting:
        """What a search chooses now; a ticket has random numbers of its own, whoever takes it."""
        self.study.sampler = self._sampler(trial.number)
        kinds = self.optuna.distributions
        for name, part in self.space.items():
            drawn = distribution(self.optuna, part)
            if isinstance(drawn, kinds.CategoricalDistribution):
                trial.suggest_categorical(name, drawn.choices)
            elif isinstance(drawn, kinds.IntDistribution):
                trial.suggest_int(name, drawn.low, drawn.high, log=drawn.log)
            else:
                trial.suggest_float(name, drawn.low, drawn.high, log=drawn.log)
        return self._setting(trial.params)

    def _sampler(self, number: int) -> Any:
        """Drawn name by name, after a ticket has been taken: never together with others, before it is."""
        seed = (self.search_seed + number) % 2**32
        return self.optuna.samplers.TPESampler(seed=seed, multivariate=False)

    def _setting(self, params: Mapping[str, Any]) -> Setting:
        return {name: decoded(self.space[name], params[name]) for name in self.space}

    def _is_dead(self, trial: Any) -> bool:
        beat, now = trial.user_attrs.get("beat", -1), time.monotonic()
        before, since = self.seen.get(trial.number, (None, now))
        if before != beat:
            self.seen[trial.number] = beat, now
            return False
        return now - since > _BEATS * self.heartbeat

    def _bury(self, trial: Any) -> None:
        """Take a ticket from a dead worker; it waits again, or fails if several workers have died over it."""
        from optuna.exceptions import UpdateFinishedTrialError

        try:
            self.study.tell(trial.number, state=self._fail)
        except (ValueError, UpdateFinishedTrialError):
            return  # it has ended after all, or somebody else has found it dead
        if (ticket := _ticket_of(trial)) is None:
            return
        history = _history(trial)
        history["deaths"] += 1
        if history["deaths"] < _DEATHS:
            self._put(ticket, trial.params, history)
            return
        setting = self._setting(trial.params) if ticket.setting is None else ticket.setting
        error = f"{_DEATHS} workers died one after the other while they had it"
        line = {"variant": ticket.variant, "settings": setting, "error": error}
        lines = {f"line {seed}": line | {"seed": seed} for seed in ticket.seeds}
        about = {"ticket": ticket._asdict(), **history, **lines, "failed": True}
        self.study.add_trial(self.optuna.trial.create_trial(state=self._fail, user_attrs=about))


def plan_identity(plan: SweepPlan) -> str:
    """What makes two files the same sweep: all that is tried, and how it is judged."""
    section = plan.section.model_dump(mode="json", exclude={"trials", "search_seed", "heartbeat", "variants"})
    space = {
        name: part.model_dump() if isinstance(part, Range) else part for name, part in plan.space.items()
    }
    whole = [section, space, plan.fixed, [each._asdict() for each in plan.candidates]]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _order(name: str) -> tuple[int, str]:
    return len(name), name


def _ticket_of(trial: Any) -> Ticket | None:
    found = trial.user_attrs.get("ticket")
    return None if found is None else Ticket(**(found | {"seeds": tuple(found["seeds"])}))


def _history(trial: Any) -> dict[str, int]:
    """How often a ticket has failed before, and how many workers have died over it."""
    return {name: trial.user_attrs.get(name, 0) for name in ("attempt", "deaths")}


def _is_open(trials: Iterable[Any]) -> bool:
    return any(trial.state.name in ("WAITING", "RUNNING") for trial in trials)


def _is_failed(trials: Iterable[Any]) -> bool:
    return any("failed" in trial.user_attrs for trial in trials)


def _is_settled(trials: Iterable[Any]) -> bool:
    """Done; or failed, and not being tried again."""
    trials = list(trials)
    if any(trial.state.name == "COMPLETE" for trial in trials):
        return True
    return _is_failed(trials) and not _is_open(trials)
