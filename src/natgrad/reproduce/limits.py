"""How much a reproduction may take: what its command is asked."""

import math
from dataclasses import dataclass

from natgrad.errors import InputError, check_counts

MINUTES = 60.0  # where neither minutes nor epochs are given


@dataclass(frozen=True)
class Budget:
    """How much a reproduction may take.

    Attributes:
        minutes: About how long all trainings may take together (60, where epochs are not given either); an
            epoch of each is timed first.
        epochs: How long each is trained, instead.
        seeds: How many seeds; where a variant has several settings, the first one only chooses.
        workers: Trainings at a time, one core each; by default as many as there are cores.
    """

    minutes: float | None = None
    epochs: int | None = None
    seeds: int = 1
    workers: int | None = None

    def checked(self) -> "Budget":
        """The same, unless it has two limits or numbers that make no training."""
        if self.minutes is not None and self.epochs is not None:
            raise InputError("expected --minutes or --epochs, got both; give one")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise InputError(f"minutes: expected more than 0, got {self.minutes:g}")
        given = {"epochs": self.epochs, "seeds": self.seeds, "workers": self.workers}
        check_counts(**{name: value for name, value in given.items() if value is not None})
        return self

    @property
    def numbers(self) -> list[int]:
        """The seeds."""
        return list(range(self.seeds))

    @property
    def busy(self) -> int:
        """How many trainings run at a time."""
        from natgrad.sweep.pool import cores  # which the command line does without until then

        return self.workers or len(cores())

    @property
    def time(self) -> float:
        """The minutes, where epochs do not decide."""
        return MINUTES if self.minutes is None else self.minutes
