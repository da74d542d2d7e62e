"""What cannot be trained, known before anything is compiled; how many steps make a chunk; what hardly learns.

A training that stays above the loss of a model that knows how often each value is one, and nothing of how
values go together (`Problem.independent`), has learned less than that.
"""

import logging
from pathlib import Path
from typing import Any

import numpy as np

from natgrad.data import Dataset
from natgrad.errors import InputError
from natgrad.models import registry
from natgrad.records.notes import TrainingProgress, next_copy

OPERATIONS = 30_000_000_000  # of a chunk: a second or two of one or two cores
_LAYERS = 100
_STEPS = 2**31 - 1  # what a step counter holds
ENOUGH_STEPS = 1000  # after which a training should know the means of its data
ABOVE = 1.1  # times the loss of independent values: what is above is not noise

_log = logging.getLogger(__name__)


def check_training(settings: Any, dataset: Dataset) -> None:
    """Refuse what does not fit the data, the computer or the counter."""
    batch, rows = settings.training.batch_size, learned(settings, dataset)
    if batch > rows:
        raise InputError(
            f"the batch size {batch} is larger than the training set of {rows} rows; lower --batch-size"
        )
    layers = len(getattr(settings.model, "layers", ()))
    if layers > _LAYERS:
        raise InputError(
            f"expected at most {_LAYERS} layers, got {layers}: each takes long to compile; use fewer"
        )
    steps = max(rows // batch * settings.training.epochs, settings.training.schedule_steps or 0)
    if steps > _STEPS:
        raise InputError(
            f"expected at most {_STEPS} steps, got {steps}; lower --epochs or training.schedule_steps"
        )
    registry.spec_of(settings.model.kind).check(settings, dataset)


def check_weights(number: int, *, flag: str = "--layers") -> None:
    """Refuse a model with so many weights that they, a copy to return to and a gradient fill the memory."""
    from natgrad.devices import memory_bytes  # with JAX, which a sweep does without until it trains

    needed, memory = 3 * 4 * number, memory_bytes()
    if needed > memory:
        raise InputError(
            f"the weights of this model, a copy and a gradient take {needed / 2**30:.3g} GB, this computer "
            f"has {memory / 2**30:.3g} GB; make {flag} smaller"
        )


def check_drawn(number: int, model: Any) -> None:
    """Refuse to draw so many rows of a model at once that four numbers a unit fill the memory.

    Units are counted by their biases. The system would end the process.
    """
    import jax  # which a sweep does without until it trains

    from natgrad.devices import memory_bytes

    units = sum(leaf.size for leaf in jax.tree.leaves(model) if leaf.ndim == 1)
    most = memory_bytes() // (4 * 4 * max(units, 1))
    if number > most:
        raise InputError(
            f"number: expected at most {most} rows, which fill the memory of this computer, got {number}; "
            "draw fewer at a time"
        )


def size_hint(settings: Any, share: float) -> str:
    """What to use in place of a step's rows, or samples of a row, where about such a share of them fits.

    Memory grows with their product, and has a small part that does not: the numbers are a little less.
    """
    objective = getattr(settings, "objective", None)
    taken = {"--batch-size": settings.training.batch_size, "--samples": getattr(objective, "samples", 0)}
    if getattr(objective, "growth", ()):
        del taken["--samples"]  # they change, and are others in this stage
    fewer = {name: _two_digits(0.95 * share * number) for name, number in taken.items()}
    return "".join(f"about {name} {number}, " for name, number in fewer.items() if number) + "or "


def _two_digits(number: float) -> int:
    """A number rounded down to two digits."""
    unit = 10 ** max(len(str(int(number))) - 2, 0)
    return int(number) // unit * unit


def check_values(dataset: Dataset, *, gaussian: bool) -> None:
    """Refuse real values where units are binary, and binary ones where they are real."""
    real = dataset.train.dtype.kind == "f"
    if real and not gaussian:
        raise InputError(
            f"Bernoulli units are 0 or 1, the values of {dataset.name} are real numbers; use --visible "
            "gaussian, or leave data.binarize out"
        )
    if gaussian and not real:
        raise InputError(
            f"Gaussian units are real, the values of {dataset.name} are made binary; add --data.binarize real"
        )


def chunk_length(settings: Any, operations: int) -> int:
    """The steps of a chunk: as many as asked for, or fewer where they would take more than seconds.

    A pure function of sizes, never of the clock, so that the same run is always cut alike.
    """
    return max(1, min(settings.training.chunk_steps, OPERATIONS // max(operations, 1)))


def chunk_end(settings: Any, operations: int, at: TrainingProgress, per_epoch: int) -> int:
    """Where in its epoch the chunk ends that begins now: also where a copy of the model is to be kept."""
    end = min(at.position + chunk_length(settings, operations), per_epoch)
    if not settings.evaluation.log_checkpoints:
        return end
    before = at.epoch * per_epoch
    return min(end, next_copy(before + at.position) - before)


def is_over(at: TrainingProgress, settings: Any) -> bool:
    """Whether the last evaluation was made, or early stopping has lost its patience."""
    ended = at.epoch >= settings.training.epochs and at.recorded == at.epoch and at.position == 0
    return ended or 0 < settings.evaluation.patience <= at.stale


def learned(settings: Any, dataset: Dataset) -> int:
    """The training rows that an epoch goes through: all, or those that have labels."""
    return getattr(settings.data, "labeled", None) or len(dataset.train)


def independent_loss(dataset: Dataset) -> float:
    """-E log p(x) of independent units with the means of the training rows, in nats: the sum of entropies."""
    return float(sum(_entropy(np.stack([dataset.means, 1 - dataset.means]))))


def class_loss(labels: np.ndarray) -> float:
    """-E log p(class) of the classes' frequencies, in nats."""
    return float(_entropy(np.unique(labels, return_counts=True)[1] / len(labels)))


def _entropy(shares: np.ndarray) -> np.ndarray:
    """-sum p log p over the first axis, in nats."""
    return -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=0) + 0.0


def note_doubt(place: Path, at: TrainingProgress, steps: int, independent: float) -> None:
    """Say once, also of a training that is resumed, that it hardly learns."""
    if not at.doubted and (said := learning_doubt(at, steps, independent)):
        at.doubted = True
        _log.warning("%s: %s", place, said)


def learning_doubt(at: TrainingProgress, steps: int, independent: float) -> str:
    """What a user should know of a training that has learned next to nothing; else empty.

    >>> learning_doubt(TrainingProgress(latest=308.0), 1562, 206.4)[:62]
    'after 1562 steps its loss is 308, that of independent values 2'
    >>> learning_doubt(TrainingProgress(latest=208.0), 1562, 206.4)
    ''
    """
    if steps < ENOUGH_STEPS or at.latest <= ABOVE * independent:
        return ""
    return (
        f"after {steps} steps its loss is {at.latest:.4g}, that of independent values {independent:.4g}: it "
        "hardly learns; train again with a lower --learning-rate or --optimizer.warmup 1000 where the loss "
        "jumps or stays, or with a higher rate or more --epochs where it still falls"
    )
