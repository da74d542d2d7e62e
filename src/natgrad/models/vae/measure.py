"""Measure and show a finished run: likelihood and bounds of its test rows, the Fisher of its networks."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from natgrad.data import Dataset, load_settings
from natgrad.data.batches import binary_rows
from natgrad.errors import InputError, check_counts
from natgrad.evaluate import trust
from natgrad.evaluate.pictures import picture_place
from natgrad.evaluate.spectra import BlockStacks, pictured_fisher_blocks
from natgrad.layers import generator
from natgrad.models.vae.fisher import RECOGNITION_SIDE, from_prior, generation_side, unit_blocks_of
from natgrad.models.vae.likelihood import evidence_bound, importance_likelihood
from natgrad.models.vae.machine import Rows, Variational, latent_noise
from natgrad.models.vae.objectives import LatentDraws
from natgrad.training.run import Run, load

NETWORKS_DRAWN = {"generation": ("generation",), "recognition": ("recognition",)}
_ELBO_SAMPLES = 100
_ACTIVE = 0.01  # a latent unit is used where the variance of its means over rows is above this [iwae]
_USUAL = 0.2  # the damping at which networks are looked at whose method has none


def evaluated_run(
    run: str | Path,
    *,
    samples: int = 1000,
    bound_samples: int = 50,
    rows: int = 0,
    seed: int = 0,
    memory_mb: float = 256.0,
) -> dict[str, Any]:
    """The test log-likelihood of a run's model with its two errors, bounds of it, and what q says."""
    check_counts(samples=samples, bound_samples=bound_samples)
    check_counts(0, rows=rows)
    found, dataset = _run_and_data(run)
    model, test = found.model.parameters, _rows(found, dataset, "test", rows)
    key, key_bound, key_elbo = jax.random.split(generator.key(seed), 3)
    ll = importance_likelihood(key, model, test, samples=samples, memory_mb=memory_mb)
    bound = importance_likelihood(
        key_bound, model, test, samples=bound_samples, memory_mb=memory_mb, tails=False
    )
    elbo = evidence_bound(key_elbo, model, test, samples=_ELBO_SAMPLES, memory_mb=memory_mb)
    used = found.model.encode(test)[0].var(axis=0) > _ACTIVE
    result = {
        "run": str(found.folder),
        "test_ll": ll.mean,
        "test_ll_se": ll.se,
        "mc_se": ll.mc_se,
        "samples": samples,
        "test_bound": bound.mean,
        "bound_samples": bound_samples,
        "test_elbo": elbo.mean,
        "test_elbo_se": elbo.se,
        "reconstruction": float(elbo.reconstruction.mean()),
        "latent_kl": float(elbo.divergence.mean()),
        "active_units": int(used.sum()),
        "rows": len(test),
    } | trust.facts(ll)
    warnings = trust.warnings(ll, "test_ll", "mc_se")
    return result | ({"warning": ". ".join(warnings)} if warnings else {})


def pictured_networks(
    run: str | Path, *, rows: int = 1000, seed: int = 0, out: str | Path | None = None
) -> dict[str, Any]:
    """Write a picture of the Fisher of both networks; return its spectra in numbers, layer by layer."""
    check_counts(rows=rows)
    found, dataset = _run_and_data(run)
    model = found.model.parameters
    if found.config.model.filters:
        raise InputError(
            "fisher shows a block for each unit of dense networks, this run has filters; give a run without"
        )
    data = _rows(found, dataset, "train", rows)
    stacks = unit_stacks(generator.key(seed), model, data)
    place = picture_place(out, found.folder / "fisher.png")
    damping = found.config.metric.damping if hasattr(found.config, "metric") else _USUAL
    count = found.config.training.batch_size
    told = pictured_fisher_blocks(place, NETWORKS_DRAWN, stacks, damping=damping, count=count)
    return {"run": str(found.folder), "rows": len(data)} | told


@jax.jit
def unit_stacks(key: Any, model: Variational, rows: Rows) -> BlockStacks:
    """The blocks of both networks: recognition's on rows, generation's on as many vectors of the prior."""
    draws = LatentDraws(rows, jnp.zeros_like(latent_noise(key, model, rows, 1)))
    sides = {"generation": generation_side(from_prior), "recognition": RECOGNITION_SIDE}
    return {
        name: unit_blocks_of(side).measure(key, (), model, draws)[0].blocks[name]
        for name, side in sides.items()
    }


def _run_and_data(run: str | Path) -> tuple[Run, Dataset]:
    found = load(run)
    return found, load_settings(found.config.data)


def _rows(found: Run, dataset: Dataset, split: str, limit: int) -> Rows:
    """Some rows of a split as the networks take them."""
    rows = binary_rows(dataset, split, seed=found.config.data.split_seed, limit=limit).T
    return rows.astype(jax.tree.leaves(found.model.parameters)[0].dtype)
