"""The Fisher of a trained machine, to look at: blocks, spectra, condition numbers, memory."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from natgrad.metrics.blocks import UnitBlocks
from natgrad.models.helmholtz import fisher as per_unit
from natgrad.models.helmholtz import machine as helmholtz
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.models.helmholtz.phases import Phases
from natgrad.solvers.shared import RANK

Stacks = dict[str, tuple[UnitBlocks, ...]]


def dream_fisher(key: PRNGKeyArray, model: Helmholtz, rows: int) -> Stacks:
    """The blocks of both networks, from that many dreams."""
    dreams = helmholtz.dream(key, model, 1, rows)
    drawn = Phases(dreams, jax.numpy.full((1, rows), 1 / rows, model.prior.dtype), dreams)
    measure = lambda metric: metric.measure(key, (), model, drawn)[0].blocks  # noqa: E731
    generation = measure(per_unit.generation_from_dreams())["generation"]
    return {
        "generation": generation,
        "recognition": measure(per_unit.recognition_from_dreams())["recognition"],
    }


def spectra(stack: tuple[UnitBlocks, ...], units: int = 16) -> list[Float[np.ndarray, "unit side"]]:
    """Eigenvalues of some units' blocks per layer, spread evenly over the layer, largest first."""
    found = []
    for blocks in stack:
        chosen = np.linspace(0, blocks.curvature.shape[0] - 1, min(units, blocks.curvature.shape[0])).astype(
            int
        )
        some = UnitBlocks(blocks.inputs, blocks.curvature[chosen])
        found.append(np.linalg.eigvalsh(np.asarray(some.dense(), np.float64))[:, ::-1])
    return found


def summary(
    stack: tuple[UnitBlocks, ...], values: list[np.ndarray], damping: float, count: int
) -> list[dict[str, Any]]:
    """Per layer: sizes, eigenvalues, damped condition, and what each solver would store with `count` rows."""
    rows = []
    for blocks, eigenvalues in zip(stack, values, strict=True):
        units = blocks.curvature.shape[0]
        mega = lambda numbers: round(4 * numbers / 2**20, 3)  # noqa: E731
        rows.append(
            {
                "units": units,
                "block": blocks.size,
                "largest": float(eigenvalues[:, 0].max()),
                "median": float(np.median(eigenvalues)),
                "condition": float(
                    ((eigenvalues[:, 0] + damping) / (eigenvalues[:, -1].clip(0) + damping)).max()
                ),
                "direct_mb": mega(units * blocks.size**2),
                "dual_mb": mega(units * count**2 + blocks.size * count),
                "shared_mb": mega((units + blocks.size) * min(count, blocks.size, RANK)),
                "cg_mb": mega((units + blocks.size) * count),
                "diagonal_mb": mega(units * blocks.size),
            }
        )
    return rows


def picture(path: Path, stacks: Stacks, values: dict[str, list[np.ndarray]]) -> None:
    """Write a PNG: the block structure of both networks to scale, one block each, and the spectra."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 9), dpi=120, layout="constrained")
    axes = figure.subplots(2, 2)
    for column, name in enumerate(("generation", "recognition")):
        _structure(axes[0, column], name, stacks[name])
        _curves(axes[1, column], name, values[name])
    temporary = path.with_name(f".{path.name}.tmp")
    figure.savefig(temporary, format="png")
    temporary.replace(path)


def _structure(axes: Any, name: str, stack: tuple[UnitBlocks, ...], units: int = 6) -> None:
    """The diagonal of the Fisher matrix: the first units of every layer, the rest is zero."""
    shown = [np.asarray(UnitBlocks(b.inputs, b.curvature[:units]).dense()) for b in stack]
    side = sum(block.shape[0] * block.shape[1] for block in shown)
    axes.set_xlim(0, side)
    axes.set_ylim(side, 0)
    axes.set_aspect("equal")
    start = 0
    top = max(float(np.abs(block).max()) for block in shown)
    for layer, blocks in enumerate(shown):
        first = start
        for block in blocks:
            extent = (start, start + len(block), start + len(block), start)
            axes.imshow(block, extent=extent, cmap="RdBu_r", vmin=-top, vmax=top, interpolation="nearest")
            start += len(block)
        axes.plot(
            [first, start, start, first, first], [first, first, start, start, first], color="0.6", lw=0.8
        )
        axes.annotate(
            f"layer {layer}", (start, first), textcoords="offset points", xytext=(4, -8), fontsize=7
        )
    axes.set_xlim(0, side)
    axes.set_ylim(side, 0)
    axes.set_title(f"{name}: one block per unit ({units} units of each layer)", fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])


def _curves(axes: Any, name: str, values: list[np.ndarray]) -> None:
    for layer, eigenvalues in enumerate(values):
        mean = np.exp(np.log(eigenvalues.clip(1e-9)).mean(axis=0))
        axes.semilogy(
            np.arange(1, len(mean) + 1) / len(mean), mean, marker=".", ms=3, lw=1, label=f"layer {layer}"
        )
    axes.set_ylim(bottom=1e-6)
    axes.set_xlabel("eigenvalue number / block size")
    axes.set_ylabel("eigenvalue (geometric mean over units)")
    axes.set_title(f"{name}: spectra", fontsize=9)
    axes.legend(fontsize=7)
