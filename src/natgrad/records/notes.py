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
        best: the lowest validation loss; stale: evaluations since.
        lowest: the lowest mean loss of a chunk; jump: by how much a sound chunk may exceed it.
        divergences: how often the training went back, each time with a smaller step.
        diverged: whether it was given up for that.
        doubted: whether its user was told that it hardly learns.
        seconds: seconds of training.
    """

    model_config = ConfigDict(extra="forbid")

    epoch: Count = 0
    position: Count = 0
    rows: Count = 0
    recorded: int = Field(-1, ge=-1, lt=2**31)
    best: Loss = math.inf
    stale: Count = 0
    lowest: Loss = math.inf
    jump: Loss = math.inf
    divergences: int = Field(0, ge=0, le=100)
    diverged: bool = False
    doubted: bool = False
    seconds: float = Field(0.0, ge=0)


class Notes(BaseModel):
    """A state's notes.

    `shape` is what of the data the model was made for, as the kind's `Spec.shape` says it; it is checked by
    whoever makes the model again.
    """

    model_config = ConfigDict(extra="ignore")

    shape: dict[str, Any]
    summary: dict[str, Any] = {}
    checksums: dict[str, str] = {}
    progress: TrainingProgress | None = None

    @classmethod
    def read(cls, content: Any) -> "Notes | None":
        """Notes from a manifest, or None where they cannot be notes."""
        try:
            return cls.model_validate(content)
        except ValidationError:
            return None


def final_summary(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a reader wants to know at the end, from the last row of the trace."""
    counted = {"epochs": row["epoch"], "steps": row["step"], "train_seconds": row["seconds"]}
    apart = {"epoch", "step", "seconds"}
    return counted | {key: value for key, value in row.items() if key not in apart and "." not in key}


def next_copy(step: int) -> int:
    """The first step after this one whose model is kept.

    >>> [next_copy(step) for step in (0, 1, 2, 3, 4, 7)]
    [1, 2, 4, 4, 8, 8]
    """
    return 1 << step.bit_length()
