"""What a saved state says beside its arrays: how far the training is, and what the model is for.

Everything here is plain JSON in the manifest, and is checked when it is read.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

Count = Annotated[int, Field(ge=0, lt=2**31)]
Loss = Annotated[float, BeforeValidator(lambda value: math.inf if value is None else value)]
"""A number whose infinity is JSON's null."""


class TrainingProgress(BaseModel):
    """How far a training is: all that moves and is not an array.

    Attributes:
        epoch: epochs that are done; position: steps of the next one that are done.
        rows: rows in the trace; recorded: the epoch of the last one, -1 where there is none.
        best: the best figure on validation data, as a loss; stale: evaluations since.
        latest: the mean loss of the last chunk; lowest: the lowest of a chunk.
        jump: by how much the loss of a sound chunk may exceed the lowest.
        divergences: how often the training went back, each time with a smaller step.
        diverged: whether it was given up for that.
        doubted: whether its user was told that it hardly learns.
        seconds: seconds of training; cpu_seconds: those of all its threads together.
    """

    model_config = ConfigDict(extra="forbid")

    epoch: Count = 0
    position: Count = 0
    rows: Count = 0
    recorded: int = Field(-1, ge=-1, lt=2**31)
    best: Loss = math.inf
    stale: Count = 0
    latest: Loss = 0.0
    lowest: Loss = math.inf
    jump: Loss = math.inf
    divergences: int = Field(0, ge=0, le=100)
    diverged: bool = False
    doubted: bool = False
    seconds: float = Field(0.0, ge=0)
    cpu_seconds: float = Field(0.0, ge=0)


class Notes(BaseModel):
    """A state's notes.

    `shape` is what of the data the model was made for, as the kind's `Spec.shape` says it; it is checked by
    whoever makes the model again. `best` is the row of the trace that was best on validation data.
    """

    model_config = ConfigDict(extra="ignore")

    shape: dict[str, Any]
    summary: dict[str, Any] = {}
    best: dict[str, Any] = {}
    checksums: dict[str, str] = {}
    progress: TrainingProgress | None = None

    @classmethod
    def read(cls, content: Any) -> "Notes | None":
        """Notes from a manifest, or None where they cannot be notes."""
        try:
            return cls.model_validate(content)
        except ValidationError:
            return None


def final_summary(last: Mapping[str, Any], best: Mapping[str, Any]) -> dict[str, Any]:
    """What a reader wants to know at the end: counts of the last row of the trace, figures of the best one.

    >>> final_summary({"epoch": 9, "step": 90, "seconds": 2.0, "divergences": 1, "test_ll": -8.0},
    ...               {"epoch": 6, "step": 60, "seconds": 1.0, "divergences": 0, "test_ll": -7.0})
    {'epochs': 9, 'steps': 90, 'train_seconds': 2.0, 'best_epoch': 6, 'divergences': 1, 'test_ll': -7.0}
    """
    counted = {"epochs": last["epoch"], "steps": last["step"], "train_seconds": last["seconds"]}
    whole = {key: last[key] for key in ("divergences", "steps_refused") if key in last}
    apart = {"epoch", "step", "seconds", "cpu_seconds", *whole}
    figures = {key: value for key, value in best.items() if key not in apart and "." not in key}
    return counted | {"best_epoch": best["epoch"]} | whole | figures


def next_copy(step: int) -> int:
    """The first step after this one whose model is kept.

    >>> [next_copy(step) for step in (0, 1, 2, 3, 4, 7)]
    [1, 2, 4, 4, 8, 8]
    """
    return 1 << step.bit_length()
