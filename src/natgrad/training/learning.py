"""Whether a training learns at all: its loss against that of independent values (`Problem.independent`)."""

import logging
from pathlib import Path

from natgrad.records.notes import TrainingProgress

ENOUGH_STEPS = 1000  # after which a training should know the means of its data
ABOVE = 1.1  # times the loss of independent values: what is above is not noise

_log = logging.getLogger(__name__)


def note_doubt(place: Path, at: TrainingProgress, steps: int, independent: float) -> None:
    """Say once, also of a training that is resumed, that it hardly learns."""
    if not at.doubted and (said := learning_doubt(at, steps, independent)):
        at.doubted = True
        _log.warning("%s: %s", place, said)


def learning_doubt(at: TrainingProgress, steps: int, independent: float) -> str:
    """What a user should know of a training that has learned next to nothing; else empty.

    >>> learning_doubt(TrainingProgress(lowest=308.0), 1562, 206.4)[:63]
    'after 1562 steps its loss is 308 at best, that of independent v'
    >>> learning_doubt(TrainingProgress(lowest=208.0), 1562, 206.4)
    ''
    """
    if steps < ENOUGH_STEPS or at.lowest <= ABOVE * independent:
        return ""
    return (
        f"after {steps} steps its loss is {at.lowest:.4g} at best, that of independent values "
        f"{independent:.4g}: it hardly learns; train again with a lower --learning-rate, or with "
        "--optimizer.warmup 1000"
    )
