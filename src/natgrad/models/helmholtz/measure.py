"""Measure a finished run: its test likelihood, its Fisher."""

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from natgrad.data import load_settings
from natgrad.data.batches import binary_rows
from natgrad.errors import check_counts
from natgrad.evaluate import trust
from natgrad.evaluate.pictures import picture_place
from natgrad.evaluate.spectra import pictured_fisher_blocks
from natgrad.layers import generator
from natgrad.models.helmholtz import exact, spectrum
from natgrad.models.helmholtz import likelihood as importance
from natgrad.models.helmholtz import normalizer as bidirectional
from natgrad.models.helmholtz.likelihood import SMALL
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.training.run import load

DAMPING = 0.2  # at which a machine is looked at whose method has none
ENUMERATED = 2**34  # values of visible units under states of the first hidden layer, for all rows


def evaluate_run(
    run: str | Path, *, samples: int = 1000, rows: int = 0, seed: int = 0, memory_mb: float = 256.0
) -> dict[str, Any]:
    """The test log-likelihood of a run's model, with its two errors; exact ones where it is small."""
    check_counts(0, rows=rows)
    check_counts(samples=samples)
    found = load(run)
    dataset = load_settings(found.config.data)
    test = binary_rows(dataset, "test", seed=found.config.data.split_seed, limit=rows)
    model = found.model.parameters
    visible = model.coding.value(test, model.prior.dtype)
    key = generator.key(seed)
    likelihood = importance.log_likelihood(key, model, visible, samples=samples, memory_mb=memory_mb)
    result = {
        "run": str(found.folder),
        "test_ll": likelihood.mean,
        "test_ll_se": likelihood.se,
        "mc_se": likelihood.mc_se,
        "samples": samples,
        "rows": test.shape[1],
    } | trust.facts(likelihood)
    warnings = trust.warnings(likelihood, "test_ll", "mc_se")
    if found.config.method in {"bihm", "nbihm"}:
        more, doubts = _bidirectional(key, model, visible, samples=samples, memory_mb=memory_mb)
        result, warnings = result | more, warnings + doubts
    if _enumerable(model, test.shape[1]):
        result["test_ll_exact"] = float(jnp.mean(exact.log_likelihood(model, visible)))
    if dataset.distribution is not None and sum(model.sizes[1:]) <= SMALL:
        result["kl"] = float(
            exact.data_divergence(model, dataset.distribution.patterns, dataset.distribution.probabilities)
        )
    return result | ({"warning": ". ".join(warnings)} if warnings else {})


def _enumerable(model: Helmholtz, rows: int) -> bool:
    """Whether the exact likelihood of so many rows takes a minute at most."""
    seen, first, *_ = model.sizes
    return not exact.too_large(model) and rows * seen * 2**first <= ENUMERATED


def _bidirectional(
    key: PRNGKeyArray, model: Helmholtz, visible: Array, *, samples: int, memory_mb: float
) -> tuple[dict[str, Any], list[str]]:
    """log p* without and with its normalizer, the published number being the one without; warnings."""
    key_rows, key_normalizer = jax.random.split(key)
    rows = bidirectional.log_unnormalized(key_rows, model, visible, samples=samples, memory_mb=memory_mb)
    z2 = bidirectional.normalizer(key_normalizer, model)
    result = {
        "test_ll_star_unnormalized": rows.mean,
        "log_z2": z2.log_z2,
        "log_z2_se": z2.se,
        "test_ll_star": rows.mean - z2.log_z2,
        "test_ll_star_se": rows.se,
        "test_ll_star_mc_se": math.hypot(rows.mc_se, z2.se),
    }
    warnings = trust.warnings(rows, "test_ll_star", "test_ll_star_mc_se")
    return result, warnings + trust.sum_warnings(z2.pareto_k, "log_z2_se", "test_ll")


def fisher_run(
    run: str | Path, *, rows: int = 2000, seed: int = 0, out: str | Path | None = None
) -> dict[str, Any]:
    """Write a picture of the Fisher of a run's model; return its spectra in numbers, layer by layer."""
    check_counts(rows=rows)
    found = load(run)
    place = picture_place(out, found.folder / "fisher.png")
    stacks = spectrum.dream_fisher(generator.key(seed), found.model.parameters, rows)
    damping = found.config.metric.damping if hasattr(found.config, "metric") else DAMPING
    count = found.config.training.batch_size * found.config.objective.samples
    told = pictured_fisher_blocks(place, spectrum.PICTURED, stacks, damping=damping, count=count)
    return {"run": str(found.folder), "rows": rows} | told
