"""Measure a finished run: its test likelihood, its samples."""

from pathlib import Path
from typing import Any

from jaxtyping import Array, PRNGKeyArray

from natgrad.data import Dataset
from natgrad.data import load as load_data
from natgrad.errors import InputError
from natgrad.evaluate.completed import save_completions, save_reconstructions
from natgrad.evaluate.given import Words
from natgrad.evaluate.pictures import save_samples
from natgrad.evaluate.weights import FEW, HEAVY, Likelihood
from natgrad.layers import generator
from natgrad.models.helmholtz import exact, spectrum
from natgrad.models.helmholtz import likelihood as importance
from natgrad.models.helmholtz import normalizer as bidirectional
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.models.helmholtz.monitor import SMALL, held_out
from natgrad.training.run import Run, load

DAMPING = 0.2  # at which a machine is looked at whose method has none
DOUBTFUL = 0.1  # the share of rows with bad weights from which on the mean's error shows it


def evaluate_run(
    run: str | Path, *, samples: int = 1000, rows: int = 0, seed: int = 0, memory_mb: float = 256.0
) -> dict[str, Any]:
    """The test log-likelihood of a run's model, with its two errors; the exact KL where the law is known."""
    if rows < 0:
        raise InputError(f"rows: expected at least 0, which means all, got {rows}")
    found = load(run)
    dataset = _dataset(found)
    test = held_out(dataset, dataset.test, seed=found.config.data.split_seed, limit=rows)
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
    } | _trust(likelihood)
    if found.config.method in {"bihm", "nbihm"}:
        result |= _bidirectional(generator.key(seed), model, visible, samples)
    if dataset.law is not None and sum(model.sizes[1:]) <= SMALL:
        result["kl"] = float(exact.divergence(model, dataset.law.patterns, dataset.law.probabilities))
    return result


def _trust(likelihood: Likelihood) -> dict[str, Any]:
    """What tells whether `mc_se` is to be trusted: averages over rows, and a sentence if it is not."""
    tails = likelihood.pareto_k
    found: dict[str, Any] = {
        "effective_samples": float(likelihood.effective_samples.mean()),
        "pareto_k": None if tails is None else float(tails.mean()),
        "heavy_tailed_rows": likelihood.heavy,
    }
    if likelihood.doubtful > DOUBTFUL:
        found["warning"] = (
            "mc_se is not to be trusted and test_ll is likely to be too low: "
            f"for {likelihood.doubtful:.0%} of the rows the importance weights have a heavy tail "
            f"(Pareto k > {HEAVY}) or fewer than {FEW} effective samples; give more --samples"
        )
    return found


def _bidirectional(key: PRNGKeyArray, model: Helmholtz, visible: Array, samples: int) -> dict[str, Any]:
    """log p* without and with its normaliser; the published number is the one without."""
    rows = bidirectional.log_unnormalised(key, model, visible, samples=samples)
    z2 = bidirectional.normaliser(key, model)
    return {
        "test_ll_star_unnormalised": float(rows.mean()),
        "log_z2": z2.log_z2,
        "log_z2_se": z2.se,
        "test_ll_star": float(rows.mean()) - z2.log_z2,
    }


def fisher_run(
    run: str | Path, *, rows: int = 2000, seed: int = 0, out: str | Path | None = None
) -> dict[str, Any]:
    """Write a picture of the Fisher of a run's model; return its spectra in numbers, layer by layer."""
    found = load(run)
    stacks = spectrum.dream_fisher(generator.key(seed), found.model.parameters, rows)
    place = Path(out) if out is not None else found.folder / "fisher.png"
    values = {name: spectrum.spectra(stack) for name, stack in stacks.items()}
    spectrum.picture(place, stacks, values)
    damping = found.config.metric.damping if hasattr(found.config, "metric") else DAMPING
    count = found.config.training.batch_size * found.config.objective.samples
    layers = [
        {"network": name, "layer": number} | row
        for name, stack in stacks.items()
        for number, row in enumerate(spectrum.summary(stack, values[name], damping, count))
    ]
    return {
        "run": str(found.folder),
        "picture": str(place),
        "damping": damping,
        "rows": rows,
        "layers": layers,
    }


def complete_run(
    run: str | Path,
    given: str,
    mask: str | None = None,
    *,
    number: int = 8,
    steps: int = 100,
    seed: int = 0,
    out: str | Path | None = None,
) -> dict[str, Any]:
    """Write a picture of given images and what a run's model makes of them.

    With a mask, its hidden pixels are drawn `number` times given the others; without one, the images are
    sent through the hidden units and back.
    """
    found = load(run)
    words = Words(_dataset(found), found.model.parameters.sizes[0], found.image_shape)
    rows = words.rows(given)
    result: dict[str, Any] = {"run": str(found.folder), "given": given, "images": len(rows)}
    picture = Path(out) if out is not None else found.folder / "completions.png"
    if mask is None:
        means = found.model.reconstruct(rows, seed=seed)
        save_reconstructions(picture, rows, means, found.image_shape)
        agreed = float((means.round() == rows).mean())
        return result | {"picture": str(picture), "seed": seed, "pixels_agreed": agreed}
    hide = words.mask(mask, seed)
    done = found.model.inpaint(rows, hide, number=number, steps=steps, seed=seed)
    save_completions(picture, rows, hide, done, found.image_shape)
    agreed = float((done.samples == rows[:, None])[..., hide].mean())
    result |= {"mask": mask, "hidden": int(hide.sum()), "picture": str(picture), "number": number}
    return result | {"steps": steps, "seed": seed, "moved": float(done.moved.mean()), "pixels_agreed": agreed}


def _dataset(found: Run) -> Dataset:
    data = found.config.data
    return load_data(
        data.name, binarize=data.binarize, split_seed=data.split_seed, image_shape=data.image_shape
    )


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
