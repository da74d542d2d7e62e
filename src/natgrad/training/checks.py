"""What cannot be trained, known before anything is compiled; and how many steps make a chunk."""

import os
from itertools import pairwise

from natgrad import config
from natgrad.data import Dataset
from natgrad.errors import InputError

OPERATIONS = 30_000_000_000  # of a chunk: a second or two of one or two cores
STEPS = 2**31 - 1  # what a step counter holds


def check(settings: config.Config, dataset: Dataset) -> None:
    """Refuse what does not fit the data, the machine or the counter."""
    batch, rows = settings.training.batch_size, learnt(settings, dataset)
    if batch > rows:
        raise InputError(
            f"the batch size {batch} is larger than the training set of {rows} rows; lower --batch-size"
        )
    steps = max(rows // batch * settings.training.epochs, settings.optimizer.decay_steps or 0)
    if steps > STEPS:
        raise InputError(
            f"expected at most {STEPS} steps, got {steps}; lower --epochs or optimizer.decay_steps"
        )
    needed, memory = 4 * _weights(settings, dataset.visible), _memory()
    if needed > memory:
        raise InputError(
            f"the weights of this machine take {needed / 2**30:.3g} GB, this computer has "
            f"{memory / 2**30:.3g} GB; make --layers smaller"
        )


def chunk_length(settings: config.Config, visible: int, samples: int) -> int:
    """The steps of a chunk: as many as asked for, or fewer where they would take more than seconds.

    A pure function of sizes, never of the clock, so that the same run is always cut alike.
    """
    rows = settings.training.batch_size * samples * settings.objective.sleeps
    step = 8 * _weights(settings, visible) * rows
    return max(1, min(settings.training.chunk, OPERATIONS // step))


def learnt(settings: config.Config, dataset: Dataset) -> int:
    """The training rows that an epoch goes through: all, or those that have labels."""
    return settings.data.labelled or len(dataset.train)


def network_chunk(settings: config.Config, weights: int) -> int:
    """The steps of a network's chunk, for that many products in a row's forward pass."""
    passes = 1 if settings.method == "plain" else 1 + settings.metric.iterations
    step = 6 * weights * settings.training.batch_size * passes
    return max(1, min(settings.training.chunk, OPERATIONS // step))


def _weights(settings: config.Config, visible: int) -> int:
    """Weights and biases of both networks; at least those of a network without its outputs."""
    sizes = (visible, *settings.model.layers)
    return sum((low + 1) * up + (up + 1) * low for low, up in pairwise(sizes))


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
