"""One sweep by any number of workers on any hosts, over a store (`natgrad sweep FILE --join STORE`).

Every worker reads the same file, puts in the tickets that are not there, takes one after the other and waits
until all are done; then each writes the same tables. A dead worker's ticket is taken by another. Where `out`
is on a shared disk its training continues bit for bit; elsewhere it starts again.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from natgrad.records.folder import json_line, locked
from natgrad.sweep import record as records
from natgrad.sweep.claims import joined, record_when_free, stoppable
from natgrad.sweep.plan import Candidate, SweepPlan
from natgrad.sweep.pool import Pool, Trial
from natgrad.sweep.record import TrialRecord
from natgrad.sweep.run import Say, Sweep, total
from natgrad.sweep.table import write_tables
from natgrad.sweep.tickets import TakenTicket, Ticket, TicketStore

_LOOK_SECONDS = 2.0  # between two looks at the store


def run_joined(
    plan: SweepPlan, tickets: TicketStore, place: Path, path: Path, *, workers: int, say: Say
) -> dict[str, Any]:
    """Share a sweep until all of it is done, then compare it; 0 workers only compare what the store has."""
    with joined(place), stoppable(place):
        going = JoinedSweep(plan, place, records.read_record(path, plan.section), say, tickets)
        if workers:
            going.go(workers)
        going.gather()
        with record_when_free(path) as stream:
            _write_missing(records.record_in(stream, plan.section), going.record)
            return write_tables(place, going.results)


class JoinedSweep(Sweep):
    """This worker's part of a shared sweep."""

    def __init__(
        self, plan: SweepPlan, place: Path, record: TrialRecord, say: Say, tickets: TicketStore
    ) -> None:
        grid = [] if plan.space else plan.candidates
        super().__init__(plan._replace(space={}, candidates=grid), place, record, say)
        self.whole, self.tickets, self.total = plan, tickets, total(plan)
        self.held: dict[tuple[int, int], TakenTicket] = {}  # by candidate and seed
        self.waiting: list[Trial] = []

    def go(self, workers: int) -> None:
        """Take tickets until none is left anywhere, first those that choose, then those that confirm."""
        with self._put_back(), Pool(workers, self.place) as pool:
            first = self._first()
            self.tickets.fill(first, again=True)
            self._share(pool, first)
            self.gather()
            self._share(pool, self._last())

    def gather(self) -> None:
        """Know what all workers have found."""
        for line in self.tickets.lines():
            self.record.learn(line)
        if self.whole.space:
            self.candidates = list(map(self.whole.candidate, self.tickets.chosen()))

    @contextmanager
    def _put_back(self) -> Iterator[None]:
        """A worker that is stopped leaves its tickets to the others, when its trainings are saved."""
        try:
            yield
        finally:
            if self.tickets.claims:
                self.tickets.release()

    def _share(self, pool: Pool, tickets: Sequence[Ticket]) -> None:
        while not self.tickets.are_settled(tickets):
            self.tickets.keep_up(tickets)
            self._take(pool)
            for trial, ending in pool.finished(min(_LOOK_SECONDS, self.tickets.heartbeat / 2)):
                self._note(trial, ending)

    def _take(self, pool: Pool) -> None:
        """Give trainings to idle cores; a folder that somebody still writes is waited for."""
        while pool.free:
            busy = {other.name for _, other in pool.busy.values()}
            for trial in self.waiting:
                if trial.name not in busy and not locked(self.place / trial.name):
                    self.waiting.remove(trial)
                    self._begin(pool, trial)
                    break
            else:
                if self.waiting or (claim := self.tickets.claim()) is None:
                    return
                self.waiting = self._trainings(claim)

    def _begin(self, pool: Pool, trial: Trial) -> None:
        if self.record.rows(self.candidates[trial.candidate], trial.seed) is not None:
            self._settle(trial, "  (was finished)")
        else:
            pool.submit(trial)

    def _trainings(self, claim: TakenTicket) -> list[Trial]:
        """The trainings of a ticket; what another worker had finished of it is known."""
        for line in self.tickets.lines():
            self.record.learn(line)
        number = self._number(claim)
        for seed in claim.ticket.seeds:
            self.held[number, seed] = claim
        return [self._trial(number, seed) for seed in claim.ticket.seeds]

    def _number(self, claim: TakenTicket) -> int:
        """The number of a ticket's candidate; one that a search chose, here or elsewhere, is new."""
        ticket = claim.ticket
        if ticket.setting is None:
            self.candidates.append(self.whole.candidate(claim.setting))
            return len(self.candidates) - 1
        for number, each in enumerate(self.candidates):
            if (each.variant, each.setting) == (ticket.variant, ticket.setting):
                return number
        self.candidates.append(Candidate(ticket.variant, ticket.setting, ticket.seeds))
        return len(self.candidates) - 1

    def _settle(self, trial: Trial, remark: str = "") -> None:
        """Tell people and the store, and settle a ticket whose trainings have all ended."""
        candidate, claim = self.candidates[trial.candidate], self.held.pop((trial.candidate, trial.seed))
        line = self.record.line(candidate, trial.seed) or {}
        self.tickets.note(claim, json.loads(json_line(line)))
        self.count = len(self.tickets.lines()) - 1
        super()._settle(trial, remark)
        if claim not in self.held.values():
            self.tickets.settle(claim, self.mean_score(trial.candidate, claim.ticket.seeds))

    def _first(self) -> list[Ticket]:
        """A ticket for every training of a grid, or for every setting that a search chooses."""
        if self.whole.space:
            count, seeds = self.whole.section.trials or 0, self.whole.section.seeds
            return [Ticket(f"search {number}", "", None, seeds) for number in range(count)]
        return list({trial.name: self._ticket(trial) for trial in self._gridded()}.values())

    def _last(self) -> list[Ticket]:
        """The best of every variant with the seeds that confirm it."""
        return list({trial.name: self._ticket(trial) for trial in self._confirming()}.values())

    def _ticket(self, trial: Trial) -> Ticket:
        candidate = self.candidates[trial.candidate]
        return Ticket(trial.name, candidate.variant, candidate.setting, (trial.seed,))


def _write_missing(file: TrialRecord, known: TrialRecord) -> None:
    """Append to a record what it does not have."""
    for key, line in known.known.items():
        if file.known.get(key) != line and file.stream is not None:
            file.stream.write(json_line(line) + "\n")
            file.stream.flush()
