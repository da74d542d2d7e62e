"""Measure a finished run: its test likelihood, its samples."""

from pathlib import Path
from typing import Any

from natgrad import generator
from natgrad.data import load as load_data
from natgrad.errors import InputError
from natgrad.evaluate import exact, importance
from natgrad.evaluate.monitor import SMALL, held_out
from natgrad.evaluate.pictures import save_samples
from natgrad.training import load


def evaluate_run(
    run: str | Path, *, samples: int = 1000, rows: int = 0, seed: int = 0, memory_mb: float = 256.0
) -> dict[str, Any]:
    """The test log-likelihood of a run's model, with its two errors; the exact KL where the law is known."""
    if rows < 0:
        raise InputError(f"rows: expected at least 0, which means all, got {rows}")
    found = load(run)
    data = found.config.data
    dataset = load_data(
        data.name, binarize=data.binarize, split_seed=data.split_seed, image_shape=data.image_shape
    )
    test = held_out(dataset, dataset.test, seed=data.split_seed, limit=rows)
    model = found.model.parameters
    visible = model.coding.value(test, model.prior.dtype)
    likelihood = importance.log_likelihood(
        generator.key(seed), model, visible, samples=samples, memory_mb=memory_mb
    )
    result = {
        "run": str(found.folder),
        "test_ll": likelihood.mean,
        "test_ll_se": likelihood.se,
        "mc_se": likelihood.mc_se,
        "samples": samples,
        "rows": test.shape[1],
    }
    if dataset.law is not None and sum(model.sizes[1:]) <= SMALL:
        result["kl"] = float(exact.divergence(model, dataset.law.patterns, dataset.law.probabilities))
    return result


def sample_run(
    run: str | Path, *, number: int = 64, seed: int = 0, out: str | Path | None = None
) -> dict[str, Any]:
    """Write a picture of pixel means and binary samples from a run's model."""
    found = load(run)
    picture = Path(out) if out is not None else found.folder / "samples.png"
    save_samples(
        picture,
        found.model.means(number, seed=seed),
        found.model.sample(number, seed=seed),
        found.image_shape,
    )
    return {"run": str(found.folder), "picture": str(picture), "number": number, "seed": seed}
