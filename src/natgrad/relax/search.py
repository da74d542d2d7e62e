"""The ask/tell object: a distribution, a random key, restarts; saved and loaded without pickle.

search = Search(10, family="gaussian", seed=0)
while not search.finished and search.evaluations < 5000:
    points = search.ask()
    search.tell([f(point) for point in points])
print(search.best_value, search.best_point)
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.errors import InputError, check_counts, number_of
from natgrad.relax import loop, saved
from natgrad.relax.plan import Plan, factor, from_json, make

_SEEDS = 2**32 - 1

_ask = functools.partial(jax.jit, static_argnums=0)(loop.ask_points)
_tell = functools.partial(jax.jit, static_argnums=0)(loop.tell)
_ended = functools.partial(jax.jit, static_argnums=0)(loop.ended)


class Search:
    """A search in progress. All arithmetic is in float64, whatever JAX's default."""

    progress: loop.SearchProgress
    key: jax.Array

    def __init__(
        self,
        start: Any,
        *,
        family: str = "gaussian",
        seed: int = 0,
        target: float | None = None,
        **options: Any,
    ) -> None:
        if target is not None and np.isnan(number_of(target)):
            raise InputError(
                f"target: expected a number, got {target!r}; leave it out to search until the budget ends"
            )
        check_counts(0, _SEEDS, seed=seed)
        self.base = make(start, family, options)
        self.seed, self.target = seed, -np.inf if target is None else float(target)
        self.restart = 0
        self.history: list[np.ndarray] = []
        self._drawn: Any = None
        self._begin(None)

    @property
    def plan(self) -> Plan:
        """The plan of the present restart: its population doubles each time [ipop]."""
        return self.base.grown(2**self.restart) if self.restart else self.base

    @property
    def skeleton(self) -> Plan:
        """The plan without its start, which is data: what a compiled loop depends on."""
        return dataclasses.replace(self.plan, mean=(), spread=(1.0,), restarts=0)

    @property
    def evaluations(self) -> int:
        """How often the function was evaluated."""
        return int(self.progress.evaluations)

    @property
    def best_value(self) -> float:
        """The lowest value so far."""
        return float(self.progress.value)

    @property
    def best_point(self) -> np.ndarray:
        """Where it was found."""
        return np.asarray(self.progress.point)

    @property
    def invalid(self) -> int:
        """How many values were not numbers."""
        return int(self.progress.invalid)

    @property
    def finished(self) -> bool:
        """Whether the target is reached or the last restart has ended; begins again if restarts are left."""
        reason = self.reason
        while reason not in (loop.RUNNING, loop.TARGET) and self.restart < self.base.restarts:
            self.restart += 1
            self._begin(self.progress)
            reason = self.reason
        return reason != loop.RUNNING

    @property
    def reason(self) -> int:
        """Why the present restart has ended, one of `loop.REASONS`."""
        with jax.enable_x64(True):
            return int(_ended(self.skeleton, self.progress, self.target))

    @property
    def message(self) -> str:
        """How things stand, in one sentence."""
        text = loop.REASONS[self.reason]
        return f"{text}; {self.invalid} values were not numbers" if self.invalid else text

    def ask(self) -> np.ndarray:
        """The points to evaluate next, [population, variable]; the same ones until they are told."""
        with jax.enable_x64(True):
            self._drawn = _ask(self.skeleton, self.key, self.progress)
        return np.asarray(self._drawn[1])

    def tell(self, values: Any) -> None:
        """Learn from the values of the points that `ask` gave, in their order."""
        if self._drawn is None:
            raise InputError(
                "tell needs points to which the values belong, and none were asked for; call ask first"
            )
        with jax.enable_x64(True):
            found = checked_values(values, len(self._drawn[1]))
            self.progress, row = _tell(self.skeleton, self.progress, *self._drawn, found)
        self.history.append(np.asarray(row)[None])
        self._drawn = None
        self._refuse_nothing_finite()

    def advance(self, function: Any, limit: int, room: int) -> None:
        """Run up to `limit` generations of a JAX function of whole populations, compiled."""
        with jax.enable_x64(True):
            self.progress, rows = loop.generations(
                self.skeleton, function, room, self.key, self.progress, limit, self.target
            )
            rows = np.asarray(rows)
        self.history.append(rows[~np.isnan(rows[:, 0])])
        self._refuse_nothing_finite()

    def save(self, folder: str | Path) -> None:
        """Write the whole search into a folder, as one file without pickle."""
        notes = {
            "plan": self.base.as_json(),
            "seed": self.seed,
            "target": None if self.target == -np.inf else self.target,
            "restart": self.restart,
        }
        saved.write_search(Path(folder), {"progress": self.progress, "history": self.rows}, notes)

    @classmethod
    def load(cls, folder: str | Path) -> "Search":
        """A saved search, which continues number by number."""
        arrays, notes = saved.read_search(Path(folder))
        found = cls.__new__(cls)
        found.base, found.seed = from_json(notes["plan"]), notes["seed"]
        found.target = -np.inf if notes["target"] is None else notes["target"]
        found.restart, found._drawn = notes["restart"], None
        found.history = [arrays["history"]]
        found._begin(None)
        with jax.enable_x64(True):
            found.progress = saved.fill(found.progress, arrays, "progress")
        return found

    @property
    def rows(self) -> np.ndarray:
        """The history, one row of `loop.HISTORY_COLUMNS` per generation."""
        return np.concatenate([np.zeros((0, len(loop.HISTORY_COLUMNS))), *self.history])

    def _begin(self, before: loop.SearchProgress | None) -> None:
        """Start the distribution again; what was found and counted before is kept."""
        with jax.enable_x64(True):
            self.key = jax.random.fold_in(jax.random.key(self.seed), self.restart)
            fresh = loop.first_progress(self.plan)
            if before is not None:
                fresh = before._replace(
                    state=self._elsewhere(fresh.state), flat=fresh.flat, stale=fresh.stale
                )
            self.progress = fresh

    def _elsewhere(self, state: Any) -> Any:
        """A fresh distribution at a random place of the start distribution, or of the box."""
        plan = self.base
        if not plan.continuous:
            return state
        rng = np.random.default_rng([self.seed, self.restart])
        mean = np.asarray(plan.mean[plan.bits :] if plan.mean else np.zeros(plan.continuous))
        root = factor(plan)
        noise = rng.standard_normal(plan.continuous)
        place = mean + (root @ noise if root.ndim == 2 else root * noise)
        if plan.low:
            place = rng.uniform(plan.low, plan.high)
        moved = jnp.asarray(place)
        return (state[0], state[1]._replace(mean=moved)) if plan.binary else state._replace(mean=moved)

    def _refuse_nothing_finite(self) -> None:
        if self.evaluations and self.best_value == np.inf:
            raise InputError(
                f"the function returned no finite number at any of the first {self.evaluations} points; "
                "check it, or start elsewhere"
            )


def checked_values(values: Any, number: int) -> np.ndarray:
    """Values as float64, one per point."""
    try:
        found = np.asarray(values)
        if np.iscomplexobj(found):
            raise TypeError
        found = found.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"the function must return one real number per point, got {values!r:.80}; return a float"
        ) from None
    if found.shape != (number,):
        raise InputError(
            f"expected {number} values, one per point, got an array of shape {found.shape}; "
            "return one number per point"
        )
    return found
