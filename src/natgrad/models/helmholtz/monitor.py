"""What is measured while a model trains: validation loss, test likelihood, exact KL where possible.

The same rows with the same keys at every evaluation, so that curves are comparable; they are a
random subset by the split's seed, since some published sets are sorted by class. Gray rows of
resampled sets are made binary once.
"""

from functools import partial
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from natgrad import config
from natgrad.data import Dataset
from natgrad.evaluate.held_out import binary_rows
from natgrad.layers.bernoulli import Coding
from natgrad.models.helmholtz import exact
from natgrad.models.helmholtz import likelihood as importance
from natgrad.models.helmholtz.machine import Helmholtz

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
