"""What is measured while a model trains: bounds and importance-sampled likelihoods of held-out rows.

The same rows with the same keys at every evaluation, so that curves are comparable.
"""

from functools import partial
from typing import Any

from jaxtyping import PRNGKeyArray

from natgrad.data import Dataset
from natgrad.data.batches import binary_rows
from natgrad.models.vae.likelihood import evidence_bound, importance_likelihood, mean_loss
from natgrad.models.vae.machine import Variational
from natgrad.models.vae.objectives import Lesson

_ELBO_SAMPLES = 10  # of every row: its divergence is exact, and rows vary more than samples


class HeldOutBounds:
    """Measures a model on fixed validation and test rows."""

    def __init__(self, key: PRNGKeyArray, settings: Any, dataset: Dataset, lesson: Lesson) -> None:
        self.key, self.lesson = key, lesson
        self.samples, self.test_samples = settings.objective.samples, settings.evaluation.test_samples
        limit, seed = settings.evaluation.rows, settings.data.split_seed
        rows = {name: binary_rows(dataset, name, seed=seed, limit=limit).T for name in ("valid", "test")}
        self.valid, self.test = rows["valid"], rows["test"]

    def measure(self, model: Variational) -> dict[str, Any]:
        """One row's worth of measurements; the loss is that of generation's bound, as in training."""
        bound = partial(evidence_bound, self.key, model, samples=_ELBO_SAMPLES)
        likelihood = partial(
            importance_likelihood, self.key, model, samples=self.test_samples, tails=False
        )  # quicker
        ll, elbo = likelihood(self.test), bound(self.test)
        return {
            "valid_loss": float(mean_loss(self.key, self.lesson, model, self.valid, samples=self.samples)),
            "valid_elbo": bound(self.valid).mean,
            "test_elbo": elbo.mean,
            "reconstruction": float(elbo.reconstruction.mean()),
            "latent_kl": float(elbo.divergence.mean()),
            "valid_ll": likelihood(self.valid).mean,
            "test_ll": ll.mean,
            "test_ll_se": ll.se,
            "mc_se": ll.mc_se,
        }
