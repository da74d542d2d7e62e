"""Importance-sampled log-likelihoods in bounded memory.

    log p(x) ~ log (1/N) sum_s w_s,   w_s = p(x, h_s) / q(h_s | x),   h_s ~ q(h | x)

The samples are taken in chunks and summed up as they come, so any number fits; `natgrad.evaluate.weights`
has the sums, their errors, and what tells whether these are to be trusted. The number of samples is not
compiled in.
"""

from functools import partial
from typing import Any

import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad import config
from natgrad.data import Dataset
from natgrad.data.batches import binary_rows
from natgrad.evaluate import weights
from natgrad.evaluate.weights import Likelihood, RowStatistics, Running, over_rows, portion_sizes
from natgrad.layers.bernoulli import Coding
from natgrad.models.helmholtz import exact
from natgrad.models.helmholtz import likelihood as importance
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.training import compile as compilation

_Visible = Float[Array, "visible row"]


def log_likelihood(
    key: PRNGKeyArray,
    model: Helmholtz,
    visible: _Visible,
    *,
    samples: int,
    memory_mb: float = 64.0,
    tails: bool = True,
) -> Likelihood:
    """The likelihood of rows in the model's coding, [visible, row], within about `memory_mb` of memory.

    Without `tails` it costs a little less, and `pareto_k` is None.
    """
    found = log_means(key, model, visible, samples=samples, memory_mb=memory_mb, tails=tails)
    return weights.likelihood(found, samples)


def log_means(
    key: PRNGKeyArray,
    model: Helmholtz,
    visible: _Visible,
    *,
    samples: int,
    power: float = 1.0,
    memory_mb: float = 64.0,
    tails: bool = True,
) -> RowStatistics:
    """The log-mean of w^power for every row, and what its weights tell."""
    rows, chunk = portion_sizes(sum(model.sizes), visible.shape[1], samples, memory_mb)
    kept = weights.kept_for(samples) if tails else 0
    given = {"model": model, "samples": samples, "power": power, "chunk": chunk, "kept": kept}
    return over_rows(partial(_running_sums, **given), key, visible, rows, samples)


@partial(jax.jit, static_argnames=("chunk", "kept"), compiler_options=compilation.WIDE)
def _running_sums(
    key: PRNGKeyArray,
    visible: _Visible,
    *,
    model: Helmholtz,
    samples: Int[Array, ""],
    power: Float[Array, ""],
    chunk: int,
    kept: int,
) -> Running:
    """The running sums of every row's weights to a power, `chunk` samples at a time."""

    def draw(turn: Int[Array, ""]) -> Float[Array, "row sample"]:
        drawn = helmholtz.wake(jax.random.fold_in(key, turn), model, visible, chunk)  # ~ q(h | x)
        return power * helmholtz.log_weights(model, drawn)

    return weights.streamed(draw, samples, chunk=chunk, kept=kept)


SMALL = 20  # units up to which the exact KL is cheap enough for every evaluation


class Monitor:
    """Measures a model on fixed validation and test rows."""

    def __init__(self, key: PRNGKeyArray, settings: config.Config, dataset: Dataset) -> None:
        self.key, self.settings, self.distribution = key, settings, dataset.distribution
        limit, seed = settings.evaluation.rows, settings.data.split_seed
        self.valid = binary_rows(dataset, "valid", seed=seed, limit=limit)
        self.test = binary_rows(dataset, "test", seed=seed, limit=limit)

    def measure(self, model: Helmholtz) -> dict[str, Any]:
        """One row's worth of measurements."""
        coded = lambda rows: _coded(model.coding, rows, model.prior.dtype)  # noqa: E731
        few, many = self.settings.objective.samples, self.settings.evaluation.test_samples
        valid = coded(self.valid)
        likelihood = partial(importance.log_likelihood, self.key, model, tails=False)  # quicker
        loss = -likelihood(valid, samples=few).mean
        valid_ll = likelihood(valid, samples=many).mean
        test = likelihood(coded(self.test), samples=many)
        row = {"valid_loss": loss, "valid_ll": valid_ll}
        row |= {"test_ll": test.mean, "test_ll_se": test.se, "mc_se": test.mc_se}
        if self.distribution is not None and sum(model.sizes[1:]) <= SMALL:
            row["kl"] = float(_divergence(model, self.distribution.patterns, self.distribution.probabilities))
        return row


_coded = jax.jit(Coding.value, static_argnums=(0, 2))
_divergence = jax.jit(exact.data_divergence)
