"""The only training loop: batches on the device, chunks of compiled steps, a row per evaluation.

Step t draws its batch and its samples from keys that are a pure function of (seed, t), and its
rows from a permutation that is a pure function of (seed, epoch). How the steps are cut into
chunks changes no number, and neither does saving: a session restored from a saved state continues as
if it had never stopped. A chunk that is not sound is rejected and done again with smaller steps.
"""

import logging
import math
import shlex
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax

from natgrad.core import Pace, State
from natgrad.data import Dataset, batches
from natgrad.devices import everywhere, keep_programs
from natgrad.errors import Diverged
from natgrad.layers import generator
from natgrad.models import registry
from natgrad.records import checkpoints, folder, gallery
from natgrad.records import state as states
from natgrad.records.notes import Notes, TrainingProgress, final_summary
from natgrad.training import chunk as chunks
from natgrad.training.checks import check_training, chunk_end, is_over, learning_doubt, note_doubt, size_hint
from natgrad.training.compile import compiled, numbers_of, program_key, without_numbers
from natgrad.training.mesh import agreed, by_one_device, check_split, spread_rows
from natgrad.training.signals import Interrupted, Stop
from natgrad.training.states import Best, FirstState, Saved, laid_out, stored_best
from natgrad.training.watcher import Watcher
from natgrad.tree import copied, in_structure
from natgrad.updates.stages import carried_over

CUT = 0.25  # of every rate, at every divergence
FAILURES = 5  # divergences at which a training is given up
_log = logging.getLogger(__name__)


class Session:
    """One training in progress: everything fixed, and what moves: state, totals, best, progress."""

    def __init__(self, settings: Any, dataset: Dataset, progress: TrainingProgress | None = None) -> None:
        keep_programs()
        check_training(settings, dataset)
        check_split(settings.training.batch_size)
        self.settings, self.dataset, self.progress = settings, dataset, progress or TrainingProgress()
        key = generator.key(settings.seed, settings.training.random)
        self.key_model, self.key_order, self.key_steps, key_watch = generator.several(key, 4)
        self.spec = registry.spec_of(settings.model.kind)
        self.kind = registry.resolve_reference(self.spec.kind)
        self.problem = self.kind.problem(key_watch, settings, dataset)
        self.rows, self.problem = spread_rows(self.problem.rows), self.problem._replace(rows=())
        self.model_shape = self.spec.shape.of(settings, dataset)  # after all that the kind refuses
        self.per_epoch = self.problem.number // settings.training.batch_size
        self.total = self.per_epoch * settings.training.epochs
        self.batch = jax.eval_shape(self.problem.draw, key, self.rows, self._order(0), 0)
        self.compile_seconds, self.saved, self.summary = 0.0, time.monotonic(), dict[str, Any]()
        self.advance: Callable[..., Any]
        self.state: State
        self.totals: chunks.Totals
        self.best = Best()
        self.numbers: Any = numbers_of(settings) if self.problem.paced else ()
        self._enter(self._stage())

    @classmethod
    def begin(cls, settings: Any, dataset: Dataset) -> "Session":
        """A session at step zero, after checks that need the data."""
        session = cls(settings, dataset)
        session.state, session.totals = session.first.of(session.key_model), session._nothing()
        return session

    @classmethod
    def restore(cls, settings: Any, dataset: Dataset, stored: states.Stored) -> "Session":
        """A session where a saved state left it."""
        session = cls(settings, dataset, stored.notes.progress.model_copy())
        best = stored_best(stored, session.shape, session.progress)
        found = stored.fill(Saved(session.shape, session.sums, best.model, best.objective))
        session.state, session.totals = laid_out(found.state, session.shape), found.totals
        session.best = Best(found.best, found.best_objective, best.row)
        session.summary = stored.notes.summary
        return session

    @property
    def pace(self) -> Pace:
        """The length of schedules, and what rates have been cut to."""
        steps = self.settings.training.schedule_steps or max(self.total, 1)
        return Pace(steps, CUT**self.progress.divergences)

    def _stage(self) -> int:
        """The stage that is in force: the last one that has begun."""
        at = self.progress
        begun = [
            epoch < at.epoch or (epoch == at.epoch and at.position > 0) for epoch, _ in self.problem.stages
        ]
        return max(sum(begun) - 1, 0)

    def _enter(self, stage: int) -> None:
        """Take up the method of a stage at the present pace, and the shapes of what it carries and sums."""
        self.stage = stage
        pace = self.pace._replace(numbers=(lambda: self.numbers) if self.problem.paced else None)
        self.algorithm = self.problem.algorithm(self.problem.stages[stage][1], pace)
        shared = without_numbers(self.settings) if self.problem.paced else self.settings
        pace = self.pace if self.spec.is_scheduled(self.settings) else self.pace._replace(steps=0)
        self.key_program = program_key(shared, stage, pace, self.problem.replaceable)
        fresh = lambda key: self.kind.fresh(key, self.settings, self.model_shape)  # noqa: E731
        made_of = self.key_program, self.model_shape, self.numbers[1:]  # a damping may be in the state
        self.first = FirstState(fresh, self.algorithm, self.batch, made_of)
        self.shape, self.info, self.sums = self.first.shapes(self.key_model)

    def _order(self, epoch: int) -> jax.Array:
        return batches.permutation(self.key_order, epoch, self.problem.number)

    def go(self, place: Path, watch: Watcher | None, stop: Stop | None = None) -> None:
        """Train to the end, recording into the folder."""
        self.advance = self._compile()
        if math.isinf(self.progress.jump) and self.total:
            self._look()
        while True:
            if self._due():
                self._record(place, watch)
            if is_over(self.progress, self.settings):
                return
            self._heed(place, stop)
            self._epoch(place, watch, stop)

    def _epoch(self, place: Path, watch: Watcher | None, stop: Stop | None) -> None:
        """The rest of the epoch that is in progress, chunk by chunk."""
        at, epoch = self.progress, self.progress.epoch
        epochs = [begins for begins, _ in self.problem.stages]
        if at.position == 0 and epoch in epochs and (stage := epochs.index(epoch)) != self.stage:
            self._change(stage)
        order, operations = self._order(epoch), self.problem.operations(self.problem.stages[self.stage][1])
        while at.epoch == epoch:
            start, end = at.position, chunk_end(self.settings, operations, at, self.per_epoch)
            before = None
            while (found := self._chunk(order, start, end)) is not None:
                self._cut(place, hopeless=chunks.is_settled(found, before, end - start))
                before = found
            at.epoch, at.position = (epoch + 1, 0) if end == self.per_epoch else (epoch, end)
            if self.settings.evaluation.log_checkpoints:
                checkpoints.keep_copy(place, self.steps, everywhere(self.state.used))
            if watch is not None:
                loss = float(self.totals.value) / max(int(self.totals.taken), 1)
                watch.advanced(epoch * self.per_epoch + end, self.total, loss)
            self._heed(place, stop)
        note_doubt(place, at, self.steps, self.problem.independent)

    def _chunk(self, order: jax.Array, start: int, end: int) -> chunks.Course | None:
        """Take the steps of a chunk, and keep them if they are sound; else say how they went."""
        at, began, cpu = self.progress, time.perf_counter(), time.process_time()
        moving = copied(self.state)  # steps work in place; this one stays to return to
        state, totals = self.advance(self.key_steps, moving, self.totals, self.rows, order, start, end)
        jax.block_until_ready(totals)
        at.seconds += time.perf_counter() - began
        at.cpu_seconds += time.process_time() - cpu
        found = chunks.course(self.totals, totals)
        if not chunks.is_sound(found, at.lowest + at.jump):
            why = chunks.complaint(found, at.lowest)
            _log.warning("the chunk after step %d of epoch %d is rejected: %s", self.steps, at.epoch + 1, why)
            return found
        self.state, self.totals = state, totals
        at.latest, at.lowest, at.diverged = found.mean, min(at.lowest, found.mean), False
        return None

    def _look(self) -> None:
        """The loss of the model as it is, in its own unit, and by how much later ones may exceed it."""
        at, copy = self.progress, copied(self.state)
        _, seen = self.advance(self.key_steps, copy, self._nothing(), self.rows, self._order(0), 0, 1)
        loss = float(seen.last) if int(seen.taken) else math.inf
        at.lowest, at.jump = loss, max(abs(loss), self.problem.ignorance)

    def _cut(self, place: Path, *, hopeless: bool) -> None:
        """Continue from the state before a chunk that was not sound, with smaller steps; or give up."""
        at = self.progress
        at.divergences += 1
        if hopeless or at.divergences >= FAILURES:
            at.diverged = True
            self._save(place)
            cut = None if hopeless else self._rate(at.divergences - 1)
            raise Diverged(f"the training of {place} {chunks.verdict(self.steps, at.divergences, cut)}")
        _log.warning(
            "continuing from step %d with the learning rate %.3g", self.steps, self._rate(at.divergences)
        )
        self._enter(self.stage)
        self.state = in_structure(self.shape, self.state)
        self.advance = self._compile()

    def _rate(self, divergences: int) -> float:
        """The present learning rate after so many cuts, for the reader."""
        pace = self.pace._replace(cut=CUT**divergences)
        return float(self.problem.rate(pace)(self.state.steps))

    def _compile(self) -> Callable[..., Any]:
        """The chunk of steps, compiled ahead so that its time is known apart; the state is donated to it."""
        function = chunks.chunk(self.algorithm, self.settings.training.batch_size, self.problem.draw)
        numbers, began = self.numbers, time.perf_counter()

        def advance(*given: Any) -> Any:
            self.numbers = given[-1]  # arguments, so that one program serves all rates and dampings
            found = function(*given[:-1])
            self.numbers = numbers
            return found

        arguments = self.key_steps, self.shape, self.sums, self.rows, self._order(0), 0, 1, numbers
        known: dict[str, Any] = {"key": self.key_program, "results": (self.shape, self.sums)}
        advice = partial(size_hint, self.settings)
        program = compiled(advance, *arguments, steps=self.total, donate=(1,), advice=advice, **known)
        self.compile_seconds = time.perf_counter() - began
        return lambda *given: program(*given, numbers)

    def _change(self, stage: int) -> None:
        """Continue with another stage: the same model, and what lasts of that which the method carries."""
        self._enter(stage)
        self.state = carried_over(self.first.of(self.key_model), self.state)
        self.best = self.best._replace(objective=())  # of other shapes
        self.advance = self._compile()
        self._look()  # losses of two stages are not compared

    @property
    def steps(self) -> int:
        """The steps that are done."""
        return int(self.state.steps)

    def _nothing(self) -> chunks.Totals:
        return chunks.no_totals(self.sums)

    def _due(self) -> bool:
        """Whether the state as it is wants a row: at the beginning, at the end, and every so many epochs."""
        at, ends = self.progress, self.settings.training.epochs
        return at.position == 0 and at.recorded != at.epoch and (at.epoch >= ends or self._is_regular())

    def _is_regular(self) -> bool:
        """Whether a longer training would evaluate at this epoch too."""
        return self.progress.epoch % self.settings.evaluation.every == 0

    def _record(self, place: Path, watch: Watcher | None) -> None:
        at = self.progress
        if not self._is_regular():
            self._save(place)  # where a longer training will want to continue from
        row: dict[str, Any] = {"epoch": at.epoch, "step": self.steps}
        row |= {"seconds": round(at.seconds, 3), "cpu_seconds": round(at.cpu_seconds, 3)}
        row |= self.totals.means() if at.rows else {"train_loss": None}
        row |= {"divergences": at.divergences} | self.problem.measure(everywhere(self.state))
        self._compare(row)
        with folder.writing(place):
            folder.append(place, row)
        gallery.keep(place, row["step"], by_one_device(self.problem.pictures, self.state))
        at.rows, at.recorded = at.rows + 1, at.epoch
        self.totals, self.summary = self._nothing(), self._named(place) | final_summary(row, self.best.row)
        self._save(place)
        if watch is not None:
            watch.evaluated(row)

    def _named(self, place: Path) -> dict[str, Any]:
        named = {"run": str(place), "method": self.settings.method, "data": self.dataset.name}
        doubt = learning_doubt(self.progress, self.steps, self.problem.independent)
        told = {"warning": doubt} if doubt else {}
        return named | {"compile_seconds": round(self.compile_seconds, 3)} | told

    def _compare(self, row: dict[str, Any]) -> None:
        """Keep the state if it is the best so far on validation data."""
        at, loss = self.progress, self.spec.judged(row)
        if not self.best.row or loss < at.best:
            self.best = Best(self.state.used, self.state.objective, row)
            at.best, at.stale = loss, 0
        else:
            at.stale += 1

    def _heed(self, place: Path, stop: Stop | None) -> None:
        """Save if that is due; if a signal came, save and stop."""
        asked = agreed((stop.number if stop is not None else None) or 0)
        due = time.monotonic() - self.saved >= self.settings.training.save_seconds
        if agreed(due or asked > 0):
            self._save(place)
        if asked:
            raise Interrupted(
                f"interrupted and saved at step {self.steps} of {self.total}; "
                f"continue with `natgrad resume {shlex.quote(str(place))}`",
                asked,
            )

    def _save(self, place: Path) -> None:
        at = self.progress
        notes = Notes(
            shape=self.model_shape.model_dump(mode="json"),
            summary=self.summary,
            best=self.best.row,
            checksums=self.dataset.split["checksums"],
            progress=at,
        )
        unevaluated = at.position == 0 and at.recorded != at.epoch
        arrays = everywhere(Saved(self.state, self.totals, self.best.model, self.best.objective))
        with folder.writing(place):
            states.save_state(place, self.steps, arrays, notes.model_dump(), unevaluated=unevaluated)
        self.saved = time.monotonic()
