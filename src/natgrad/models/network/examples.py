"""From a data set to what a network learns from: rows with targets, rows without, batches of both.

Rows stay on the device as bytes, value / levels is an input; or as real numbers. A part of the training
rows may be without labels: the gradient never sees them, the metric may. Its rows are part of the batch:

    same         those of the gradient                      different    those after it in the epoch's order
    unlabeled    drawn from the rows without labels         both         the gradient's, and such
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from natgrad.data import Dataset, batches
from natgrad.data.batches import order_of
from natgrad.data.splits import evenly
from natgrad.devices import by_first_axis, evenly_spaced, placed
from natgrad.errors import InputError
from natgrad.layers.task import Examples, TaskBatch
from natgrad.tree import pytree

Targets = Callable[[Dataset, str], np.ndarray | None]
MetricRows = Callable[[PRNGKeyArray, "StoredExamples", Examples, Array, Array], Examples | None]


@pytree
class StoredExamples:
    """Training rows with their targets (None: the inputs themselves) and those without, on the device."""

    labeled: batches.StoredRows
    targets: Array | None
    unlabeled: batches.StoredRows


def class_targets(dataset: Dataset, split: str) -> np.ndarray:
    """The targets of a softmax: class numbers."""
    labels = _labels(dataset, split)
    if labels.dtype.kind not in "iu":
        raise InputError(
            f"the softmax output expects class numbers, the labels of {dataset.name} are {labels.dtype}; "
            "use --output linear, or give whole numbers"
        )
    return labels.astype(np.int32)


def number_targets(dataset: Dataset, split: str) -> np.ndarray:
    """The targets of one other output: a number for every row, [row, 1]."""
    return _labels(dataset, split).astype(jnp.zeros(()).dtype)[:, None]


def itself(dataset: Dataset, split: str) -> None:
    """The targets of an autoencoder: every row is its own."""
    del dataset, split


def _labels(dataset: Dataset, split: str) -> np.ndarray:
    if dataset.labels is None:
        raise InputError(
            f"the data {dataset.name} have no labels to learn; use --model autoencoder, labeled data such as "
            "digits, or an .npz file with labels (train_labels, valid_labels, test_labels beside splits)"
        )
    return dataset.labels[split]


def examples_of(dataset: Dataset, targets_of: Targets, *, labeled: int | None, seed: int) -> StoredExamples:
    """The training rows with their targets; with `labeled`, so many of them, drawn by the seed."""
    targets, count = targets_of(dataset, "train"), len(dataset.train)
    rows = lambda values: batches.on_device(values, dataset.levels, dataset.resample)  # noqa: E731
    if labeled is not None and labeled > count:
        raise InputError(
            f"expected at most the {count} training rows of {dataset.name} to be labeled, got {labeled}; "
            "lower --labeled"
        )
    marks = np.zeros(count) if targets is None else targets.reshape(-1)
    chosen, rest = evenly(marks, labeled or count, seed)
    known = None if targets is None else jnp.asarray(targets[chosen])
    return StoredExamples(rows(dataset.train[chosen]), known, rows(dataset.train[rest]))


def held_out(dataset: Dataset, targets_of: Targets, split: str, *, limit: int, seed: int) -> Examples:
    """Up to `limit` rows (0: all) of a held-out split, chosen by the split's seed, with their targets."""
    values: np.ndarray = getattr(dataset, split)
    order = order_of(len(values), seed=seed, limit=limit)
    rows = batches.on_device(values[order], dataset.levels, dataset.resample)
    inputs = jax.jit(inputs_of)(jax.random.key(seed), rows, np.arange(len(order)))
    targets = targets_of(dataset, split)
    return Examples(inputs, inputs if targets is None else jnp.asarray(targets[order]))


def inputs_of(key: PRNGKeyArray, rows: batches.StoredRows, indices: Array) -> Array:
    """The chosen rows as inputs, [row, visible]: means in [0, 1], or as real as the data; or drawn again."""
    kind = jnp.zeros(()).dtype
    if rows.resample:
        return batches.take_batch(key, rows, indices, kind).T
    chosen = placed(batches.chosen_rows(rows.values, indices), "rows", None)
    return chosen.astype(kind) / rows.levels


def batches_of(size: int, metric: MetricRows) -> Callable[..., TaskBatch]:
    """How batch number `position` of an epoch is drawn."""

    def draw(key: PRNGKeyArray, examples: StoredExamples, order: Array, position: Array) -> TaskBatch:
        key_rows, key_metric = jax.random.split(key)
        own = taken(key_rows, examples, jax.lax.dynamic_slice(order, (position * size,), (size,)))
        return TaskBatch(own, metric(key_metric, examples, own, order, position))

    return draw


def taken(key: PRNGKeyArray, examples: StoredExamples, chosen: Array) -> Examples:
    """Labeled rows with their targets."""
    inputs = inputs_of(key, examples.labeled, chosen)
    if examples.targets is None:
        return Examples(inputs, inputs)
    return Examples(inputs, by_first_axis(batches.chosen_rows(examples.targets, chosen), "rows"))


def same(examples: StoredExamples, size: int, count: int) -> MetricRows:
    """The gradient's own rows, or `count` of them (0: all)."""
    del examples
    if count > size:
        raise InputError(
            f"metric.rows: expected at most the batch's {size} rows, got {count}; raise --batch-size, or use "
            "--metric-data different"
        )

    def rows(
        key: PRNGKeyArray, examples: StoredExamples, own: Examples, order: Array, position: Array
    ) -> Examples | None:
        del key, examples, order, position
        some = lambda leaf: evenly_spaced(leaf, 0, count)  # noqa: E731
        return jax.tree.map(some, own) if 0 < count < size else None

    return rows


def different(examples: StoredExamples, size: int, count: int) -> MetricRows:
    """The rows that follow the batch in the epoch's order, which begins again where it ends."""
    total, count = len(examples.labeled.values), count or size
    if count > total - size:
        raise InputError(
            f"a different batch of {count} rows for the metric needs {size + count} labeled rows, there are "
            f"{total}; lower --batch-size or metric.rows"
        )

    def rows(
        key: PRNGKeyArray, examples: StoredExamples, own: Examples, order: Array, position: Array
    ) -> Examples:
        del own
        return taken(key, examples, order[((position + 1) * size + jnp.arange(count)) % total])

    return rows


def unlabeled(examples: StoredExamples, size: int, count: int) -> MetricRows:
    """Rows drawn from those without labels, without targets."""
    total, count = len(examples.unlabeled.values), count or size
    if not total:
        raise InputError(
            "there are no unlabeled rows for the metric, since every training row is learned from; "
            "use labeled data and give --labeled, fewer than the training rows"
        )

    def rows(
        key: PRNGKeyArray, examples: StoredExamples, own: Examples, order: Array, position: Array
    ) -> Examples:
        del own, order, position
        key_choice, key_rows = jax.random.split(key)
        chosen = jax.random.randint(key_choice, (count,), 0, total)
        return Examples(inputs_of(key_rows, examples.unlabeled, chosen))

    return rows


def both(examples: StoredExamples, size: int, count: int) -> MetricRows:
    """The gradient's rows and `count` without labels [revisiting sec. 8.7]."""
    others = unlabeled(examples, size, count)

    def rows(
        key: PRNGKeyArray, examples: StoredExamples, own: Examples, order: Array, position: Array
    ) -> Examples:
        more: Any = others(key, examples, own, order, position)
        return Examples(jnp.concatenate([own.inputs, more.inputs]))

    return rows
