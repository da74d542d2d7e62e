"""The only training loop: batches on the device, chunks of compiled steps, a row per evaluation.

Step t draws its batch and its samples from keys that are a pure function of (seed, t), and its
rows from a permutation that is a pure function of (seed, epoch). How the steps are cut into
chunks changes no number.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from natgrad import config, generator, registry, tree
from natgrad.chunk import Totals, chunk, shapes
from natgrad.core import State
from natgrad.data import Dataset, batches
from natgrad.errors import InputError
from natgrad.evaluate.monitor import Monitor
from natgrad.records import folder, gallery
from natgrad.records import state as states
from natgrad.updates.natural import Evidence, solver_names


class Watcher(Protocol):
    """Someone who looks on: called after every chunk and after every evaluation."""

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """`steps` of `total` are done; the loss of late."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """A row was added to the trace."""


class Saved(NamedTuple):
    """What a saved state holds; `best` is the best model so far where early stopping looks for it."""

    state: State
    best: Any


class Session:
    """One training under way: everything fixed, and the state that moves."""

    def __init__(self, settings: config.Config, dataset: Dataset) -> None:
        self.settings, self.dataset = settings, dataset
        self.per_epoch = len(dataset.train) // settings.training.batch_size
        self.total = self.per_epoch * settings.training.epochs
        key = generator.key(settings.seed)
        self.key_model, self.key_order, self.key_steps, key_watch = jax.random.split(key, 4)
        self.algorithm = registry.algorithm(settings, self.total)
        self.monitor = Monitor(key_watch, settings, dataset)
        self.rows = batches.on_device(dataset.train, dataset.levels, dataset.resample)
        self.batch = jax.ShapeDtypeStruct(
            (dataset.visible, settings.training.batch_size), jnp.zeros(()).dtype
        )
        self.seconds = self.compile_seconds = 0.0
        self.state: State
        self.totals: Totals
        self.best: Any = None
        self.best_loss, self.stale = float("inf"), 0

    @classmethod
    def begin(cls, settings: config.Config, dataset: Dataset) -> "Session":
        """A session at step zero, after checks that need the data."""
        if settings.training.batch_size > len(dataset.train):
            raise InputError(
                f"the batch size {settings.training.batch_size} is larger than the training set of "
                f"{len(dataset.train)} rows; lower --batch-size"
            )
        session = cls(settings, dataset)
        session.state = jax.jit(session._initial)()
        return session

    def _initial(self) -> State:
        key_init, key_state = jax.random.split(self.key_model)
        model = registry.model(key_init, self.settings.model, self.dataset.visible)
        return self.algorithm.init(key_state, model, self.batch)

    def go(self, place: Path, watch: Watcher | None) -> None:
        """Train to the end, recording into the folder."""
        advance = self._compile()
        self._record(place, watch, epoch=0, totals=None)
        totals = self._nothing()
        growth = dict(self.settings.objective.growth)
        for epoch in range(self.settings.training.epochs):
            if epoch in growth:
                advance = self._grow(growth[epoch])
            totals = self._epoch(advance, epoch, totals, watch)
            last = epoch + 1 == self.settings.training.epochs
            if last or (epoch + 1) % self.settings.evaluation.every == 0:
                self._record(place, watch, epoch=epoch + 1, totals=totals)
                totals = self._nothing()
            if self._patience_lost():
                break

    def _epoch(
        self, advance: Callable[..., Any], epoch: int, totals: Totals, watch: Watcher | None
    ) -> Totals:
        order = batches.permutation(self.key_order, epoch, len(self.rows.values))
        for start in range(0, self.per_epoch, self.settings.training.chunk):
            stop = min(start + self.settings.training.chunk, self.per_epoch)
            began = time.perf_counter()
            self.state, totals = advance(self.key_steps, self.state, totals, self.rows, order, start, stop)
            jax.block_until_ready(totals)
            self.seconds += time.perf_counter() - began
            if watch is not None:
                loss = float(totals.value) / max(int(totals.taken), 1)
                watch.advanced(epoch * self.per_epoch + stop, self.total, loss)
        return totals

    def _compile(self) -> Callable[..., Any]:
        """The chunk of steps, compiled ahead so that its time is known apart."""
        coding = registry.CODINGS[self.settings.model.coding]
        function = jax.jit(
            chunk(self.algorithm, self.settings.training.batch_size, coding), donate_argnums=(1, 2)
        )
        order = batches.permutation(self.key_order, 0, len(self.rows.values))
        self.totals = shapes(self.algorithm, self.key_steps, self.state, self.batch)
        began = time.perf_counter()
        compiled = function.lower(
            self.key_steps, self.state, self._nothing(), self.rows, order, 0, 1
        ).compile()
        self.compile_seconds = time.perf_counter() - began
        return compiled

    def solvers(self) -> dict[str, list[str]] | None:
        """The solver that every layer gets, for the reader; None for a plain method."""
        _, info = jax.eval_shape(self.algorithm.step, self.key_steps, self.state, self.batch)
        if not isinstance(info.evidence, Evidence):
            return None
        return solver_names(info.evidence.fisher, registry.choice(self.settings))

    def _grow(self, samples: int) -> Callable[..., Any]:
        """Go on with another number of samples: the same model, a step compiled anew."""
        objective = self.settings.objective.model_copy(update={"samples": samples})
        self.algorithm = registry.algorithm(
            self.settings.model_copy(update={"objective": objective}), self.total
        )
        fresh = jax.jit(self._initial)()
        self.state = self.state._replace(objective=fresh.objective, direction=fresh.direction)
        return self._compile()

    @property
    def model(self) -> Any:
        """The model to be judged: the average of late ones, if one is kept."""
        return self.state.average if self.settings.evaluation.average else self.state.model

    def _nothing(self) -> Totals:
        return tree.zeros(self.totals)

    def _record(self, place: Path, watch: Watcher | None, *, epoch: int, totals: Totals | None) -> None:
        row: dict[str, Any] = {"epoch": epoch, "step": int(self.state.steps)}
        row["seconds"] = round(self.seconds, 3)
        row |= {"train_loss": None} if totals is None else totals.means()
        row |= self.monitor.measure(self.model)
        self._judge(row["valid_loss"])
        folder.append(place, row)
        gallery.keep(place, row["step"], self.model)
        summary = self._summary(place, row)
        notes = {"visible": self.dataset.visible, "image_shape": self.dataset.image_shape, "summary": summary}
        best = jax.tree.map(jnp.copy, self.best) if self.settings.evaluation.patience else ()
        states.save(place, row["step"], Saved(self.state, best), notes)
        if watch is not None:
            watch.evaluated(row)

    def _judge(self, loss: float) -> None:
        if self.best is None or loss < self.best_loss:
            self.best, self.best_loss, self.stale = jax.tree.map(jnp.copy, self.model), loss, 0
        else:
            self.stale += 1

    def _patience_lost(self) -> bool:
        return 0 < self.settings.evaluation.patience <= self.stale

    def _summary(self, place: Path, row: dict[str, Any]) -> dict[str, Any]:
        """What a reader wants to know at the end, from the last row."""
        named = {"run": str(place), "method": self.settings.method, "data": self.dataset.name}
        counted = {"epochs": row["epoch"], "steps": row["step"], "train_seconds": row["seconds"]}
        apart = {"epoch", "step", "seconds"}
        measured = {key: value for key, value in row.items() if key not in apart and "." not in key}
        return named | counted | {"compile_seconds": round(self.compile_seconds, 3)} | measured
