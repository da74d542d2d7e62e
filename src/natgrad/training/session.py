"""The only training loop: batches on the device, chunks of compiled steps, a row per evaluation.

Step t draws its batch and its samples from keys that are a pure function of (seed, t), and its
rows from a permutation that is a pure function of (seed, epoch). How the steps are cut into
chunks changes no number, and neither does saving: a session restored from a saved state goes on as
if it had never stopped. A chunk that is not sound is taken back and done again with a smaller step.
"""

import logging
import math
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from natgrad import config, tree
from natgrad.core import State
from natgrad.data import Dataset, batches
from natgrad.errors import Diverged
from natgrad.layers import generator
from natgrad.models.helmholtz import methods as registry
from natgrad.records import folder, gallery
from natgrad.records import state as states
from natgrad.records.notes import Notes, Progress, summary
from natgrad.training.checks import check
from natgrad.training.chunk import Totals, chunk, complaint, course, is_sound, shapes
from natgrad.training.compile import compiled
from natgrad.training.signals import Interrupted, Stop
from natgrad.updates.natural import Evidence, solver_names

CUT = 0.25  # of the learning rate, at every divergence
FAILURES = 5  # divergences at which a training is given up
_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Someone who looks on: called after every chunk and after every evaluation."""

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """`steps` of `total` are done; the loss of late."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """A row was added to the trace."""


class Saved(NamedTuple):
    """The arrays of a saved state; `best` is the best model so far where early stopping looks for it."""

    state: Any
    totals: Any
    best: Any


def is_over(at: Progress, settings: config.Config) -> bool:
    """Whether the last evaluation was made, or early stopping has lost its patience."""
    ended = at.epoch >= settings.training.epochs and at.recorded == at.epoch and at.position == 0
    return ended or 0 < settings.evaluation.patience <= at.stale


class Session:
    """One training under way: everything fixed, and what moves: state, totals, best, progress."""

    def __init__(self, settings: config.Config, dataset: Dataset, progress: Progress | None = None) -> None:
        check(settings, dataset)
        self.settings, self.dataset = settings, dataset
        self.progress = progress or Progress(samples=settings.objective.samples)
        key = generator.key(settings.seed)
        self.key_model, self.key_order, self.key_steps, key_watch = jax.random.split(key, 4)
        self.problem = registry.problem(key_watch, settings, dataset)
        self.rows = self.problem.rows
        self.per_epoch = self.problem.number // settings.training.batch_size
        self.total = self.per_epoch * settings.training.epochs
        self.algorithm = self._method()
        self.batch = jax.eval_shape(self.problem.draw, key, self.rows, self._order(0), 0)
        self.shape = jax.eval_shape(self._initial)
        self.sums = shapes(self.algorithm, self.key_steps, self.shape, self.batch)
        self.compile_seconds, self.saved = 0.0, time.monotonic()
        self.summary: dict[str, Any] = {}
        self.advance: Callable[..., Any]
        self.state: State
        self.totals: Totals
        self.best: Any = ()

    @classmethod
    def begin(cls, settings: config.Config, dataset: Dataset) -> "Session":
        """A session at step zero, after checks that need the data."""
        session = cls(settings, dataset)
        session.state, session.totals = jax.jit(session._initial)(), session._nothing()
        return session

    @classmethod
    def restore(cls, settings: config.Config, dataset: Dataset, stored: states.Stored) -> "Session":
        """A session where a saved state left it."""
        session = cls(settings, dataset, stored.notes.progress.model_copy())
        best = session.shape.model if settings.evaluation.patience and session.progress.rows else ()
        found = stored.fill(Saved(session.shape, session.sums, best))
        session.state, session.totals, session.best = found
        session.summary = stored.notes.summary
        return session

    def _method(self) -> Any:
        """The algorithm, with the present number of samples and the learning rate as it has been cut."""
        chosen, at = self.settings, self.progress
        objective = chosen.objective.model_copy(update={"samples": at.samples})
        rate = chosen.optimizer.learning_rate * CUT**at.divergences
        optimizer = chosen.optimizer.model_copy(update={"learning_rate": rate})
        return self.problem.algorithm(
            chosen.model_copy(update={"objective": objective, "optimizer": optimizer}), self.total
        )

    def _initial(self) -> State:
        key_init, key_state = jax.random.split(self.key_model)
        return self.algorithm.init(key_state, self.problem.fresh(key_init), self.batch)

    def _order(self, epoch: int) -> jax.Array:
        return batches.permutation(self.key_order, epoch, self.problem.number)

    def go(self, place: Path, watch: Watcher | None, stop: Stop | None = None) -> None:
        """Train to the end, recording into the folder."""
        self.advance = self._compile()
        while True:
            if self._due():
                self._record(place, watch)
            if is_over(self.progress, self.settings):
                return
            self._heed(place, stop)
            self._epoch(place, watch, stop)

    def _epoch(self, place: Path, watch: Watcher | None, stop: Stop | None) -> None:
        """The rest of the epoch that is under way, chunk by chunk."""
        at, epoch = self.progress, self.progress.epoch
        if at.position == 0 and (samples := dict(self.settings.objective.growth).get(epoch)):
            self._grow(samples)
        order, size = self._order(epoch), self.problem.chunk(at.samples)
        for start in range(at.position, self.per_epoch, size):
            end = min(start + size, self.per_epoch)
            while not self._chunk(order, start, end):
                self._cut(place)
            at.epoch, at.position = (epoch + 1, 0) if end == self.per_epoch else (epoch, end)
            if watch is not None:
                loss = float(self.totals.value) / max(int(self.totals.taken), 1)
                watch.advanced(epoch * self.per_epoch + end, self.total, loss)
            self._heed(place, stop)

    def _chunk(self, order: jax.Array, start: int, end: int) -> bool:
        """Take the steps of a chunk, and keep them if they are sound."""
        at, began = self.progress, time.perf_counter()
        moving = jax.tree.map(jnp.copy, self.state)  # steps work in place; what was, stays to go back to
        state, totals = self.advance(self.key_steps, moving, self.totals, self.rows, order, start, end)
        jax.block_until_ready(totals)
        at.seconds += time.perf_counter() - began
        found = course(self.totals, totals)
        if not is_sound(found, at.lowest + at.jump):
            why = complaint(found, at.lowest)
            _log.warning(
                "the chunk after step %d of epoch %d is not taken: %s", self.steps, at.epoch + 1, why
            )
            return False
        self.state, self.totals, at.lowest = state, totals, min(at.lowest, found.mean)
        at.diverged = False
        return True

    def _cut(self, place: Path) -> None:
        """Go on from the state before a chunk that was not sound, with a smaller step; or give up."""
        at = self.progress
        at.divergences += 1
        rate = self.settings.optimizer.learning_rate * CUT**at.divergences
        if at.divergences >= FAILURES:
            at.diverged = True
            self._save(place)
            raise Diverged(
                f"the training of {place} diverged {at.divergences} times, although the learning rate was "
                f"cut to {rate / CUT:.3g}; its last good state, of step {self.steps}, is saved: "
                "train anew with a lower --learning-rate or, for a natural method, a higher --damping"
            )
        _log.warning("going on from step %d with the learning rate %.3g", self.steps, rate)
        self.algorithm = self._method()
        self.advance = self._compile()

    def _compile(self) -> Callable[..., Any]:
        """The chunk of steps, compiled ahead so that its time is known apart; the state is donated to it."""
        function = chunk(self.algorithm, self.settings.training.batch_size, self.problem.draw)
        began = time.perf_counter()
        arguments = self.key_steps, self.state, self._nothing(), self.rows, self._order(0), 0, 1
        advance = compiled(function, *arguments, steps=self.total, donate=(1,))
        self.compile_seconds = time.perf_counter() - began
        return advance

    def solvers(self) -> dict[str, list[str]] | None:
        """The solver that every layer gets, for the reader; None for a plain method."""
        _, info = jax.eval_shape(self.algorithm.step, self.key_steps, self.shape, self.batch)
        if not isinstance(info.evidence, Evidence):
            return None
        return solver_names(info.evidence.fisher, registry.choice(self.settings))

    def _grow(self, samples: int) -> None:
        """Go on with another number of samples: the same model, a step compiled anew."""
        self.progress.samples = samples
        self.algorithm = self._method()
        fresh = jax.jit(self._initial)()
        self.state = self.state._replace(objective=fresh.objective, direction=fresh.direction)
        self.advance = self._compile()

    @property
    def model(self) -> Any:
        """The model to be judged: the average of late ones, if one is kept."""
        return self.state.average if self.settings.evaluation.average else self.state.model

    @property
    def steps(self) -> int:
        """The steps that are done."""
        return int(self.state.steps)

    def _nothing(self) -> Totals:
        return tree.zeros(self.sums)

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
            self._save(place)  # where a longer training will want to go on from
        row: dict[str, Any] = {"epoch": at.epoch, "step": self.steps, "seconds": round(at.seconds, 3)}
        row |= self.totals.means() if at.rows else {"train_loss": None}
        row |= {"divergences": at.divergences} | self.problem.measure(self.model)
        self._judge(row["valid_loss"])
        with folder.writing(place):
            folder.append(place, row)
        gallery.keep(place, row["step"], self.model)
        at.rows, at.recorded = at.rows + 1, at.epoch
        self.totals, self.summary = self._nothing(), self._named(place) | summary(row)
        self._save(place)
        if watch is not None:
            watch.evaluated(row)

    def _named(self, place: Path) -> dict[str, Any]:
        named = {"run": str(place), "method": self.settings.method, "data": self.dataset.name}
        return named | {"compile_seconds": round(self.compile_seconds, 3)}

    def _judge(self, loss: float) -> None:
        """Keep the best model for early stopping; the first loss is what later ones are measured by."""
        at, loss = self.progress, loss if math.isfinite(loss) else math.inf
        if at.rows == 0:
            at.lowest, at.jump = loss, max(loss, self.problem.scale)
        if at.rows == 0 or loss < at.best:
            self.best, at.best, at.stale = self.model if self.settings.evaluation.patience else (), loss, 0
        else:
            at.stale += 1

    def _heed(self, place: Path, stop: Stop | None) -> None:
        """Save if that is due; if a signal came, save and stop."""
        asked = stop is not None and stop.number is not None
        if asked or time.monotonic() - self.saved >= self.settings.training.save_seconds:
            self._save(place)
        if stop is not None and stop.number is not None:
            raise Interrupted(
                f"interrupted and saved at step {self.steps} of {self.total}; "
                f"continue with `natgrad resume {shlex.quote(str(place))}`",
                stop.number,
            )

    def _save(self, place: Path) -> None:
        at = self.progress
        notes = Notes(
            visible=self.dataset.visible,
            outputs=self.problem.outputs,
            image_shape=self.dataset.image_shape,
            summary=self.summary,
            checksums=self.dataset.split["checksums"],
            progress=at,
        )
        unevaluated = at.position == 0 and at.recorded != at.epoch
        arrays = Saved(self.state, self.totals, self.best)
        with folder.writing(place):
            states.save(place, self.steps, arrays, notes.model_dump(), unevaluated=unevaluated)
        self.saved = time.monotonic()
