"""Whether a sampling error is to be trusted: what to report beside it, and a sentence if it is not."""

from typing import Any

from natgrad.evaluate.weights import FEW, HEAVY, Likelihood

DOUBTFUL = 0.1  # the share of rows with bad weights from which on the mean shows it


def facts(found: Likelihood) -> dict[str, Any]:
    """The weights' effective samples and tails, as averages over rows."""
    tails = found.pareto_k
    return {
        "effective_samples": float(found.effective_samples.mean()),
        "pareto_k": None if tails is None else float(tails.mean()),
        "heavy_tailed_rows": found.heavy,
    }


def warnings(found: Likelihood, value: str, error: str) -> list[str]:
    """A sentence if `error`, the name of the sampling error of `value`, is too small for too many rows."""
    if not found.doubtful > DOUBTFUL:
        return []
    return [
        f"{error} is not reliable, and {value} is likely to be too low: for {found.doubtful:.0%} of the "
        f"rows the importance weights have a heavy tail (Pareto k > {HEAVY}) or fewer than {FEW} effective "
        "samples; give more samples"
    ]


def sum_warnings(pareto_k: float | None, error: str, instead: str) -> list[str]:
    """The same for a single sum, whose samples are as many as they are; `instead` is what to look at."""
    if pareto_k is None or pareto_k <= HEAVY:
        return []
    return [
        f"{error} is not reliable: the terms of the normalizer have a heavy tail (Pareto k "
        f"{pareto_k:.2g} > {HEAVY}); compare by {instead}"
    ]
