"""What cannot be trained, known before anything is compiled; and how many steps make a chunk."""

from typing import Any

from natgrad.data import Dataset
from natgrad.errors import InputError
from natgrad.models import registry
from natgrad.records.notes import TrainingProgress, next_copy

OPERATIONS = 30_000_000_000  # of a chunk: a second or two of one or two cores
_STEPS = 2**31 - 1  # what a step counter holds


def check_training(settings: Any, dataset: Dataset) -> None:
    """Refuse what does not fit the data, the computer or the counter."""
    batch, rows = settings.training.batch_size, learned(settings, dataset)
    if batch > rows:
        raise InputError(
            f"the batch size {batch} is larger than the training set of {rows} rows; lower --batch-size"
        )
    steps = max(rows // batch * settings.training.epochs, settings.training.schedule_steps or 0)
    if steps > _STEPS:
        raise InputError(
            f"expected at most {_STEPS} steps, got {steps}; lower --epochs or training.schedule_steps"
        )
    registry.spec_of(settings.model.kind).check(settings, dataset)


def check_weights(number: int, *, bytes_each: int = 4) -> None:
    """Refuse a model with so many weights that they alone fill the memory."""
    from natgrad.devices import memory_bytes  # with JAX, which a sweep does without until it trains

    needed, memory = bytes_each * number, memory_bytes()
    if needed > memory:
        raise InputError(
            f"the weights of this model take {needed / 2**30:.3g} GB, this computer has "
            f"{memory / 2**30:.3g} GB; make --layers smaller"
        )


def fitting(settings: Any, share: float) -> str:
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
