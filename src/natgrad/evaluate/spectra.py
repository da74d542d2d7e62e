"""The Fisher of two networks, to look at: blocks, spectra, condition numbers, memory.

Blocks come in parts, each a layer after the other; a network is drawn with its parts.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from natgrad.evaluate.pictures import save_figure
from natgrad.metrics.blocks import UnitBlocks
from natgrad.solvers.shared import RANK

BlockStacks = dict[str, tuple[UnitBlocks, ...]]
Spectra = dict[str, list[np.ndarray]]
Networks = Mapping[str, tuple[str, ...]]


def pictured_fisher_blocks(
    place: Path, networks: Networks, stacks: BlockStacks, *, damping: float, count: int
) -> dict[str, Any]:
    """Write a picture of blocks and their spectra; return these in numbers, layer by layer."""
    values = {part: spectra(stack) for part, stack in stacks.items()}
    picture(place, networks, stacks, values)
    layers = table(networks, stacks, values, damping=damping, count=count)
    return {"picture": str(place), "damping": damping, "layers": layers}


def spectra(stack: tuple[UnitBlocks, ...], units: int = 16) -> list[Float[np.ndarray, "unit side"]]:
    """Eigenvalues of some units' blocks per layer, spread evenly over the layer, largest first."""
    found = []
    for blocks in stack:
        chosen = np.linspace(0, blocks.curvature.shape[0] - 1, min(units, blocks.curvature.shape[0])).astype(
            int
        )
        found.append(np.linalg.eigvalsh(np.asarray(_dense(blocks, chosen), np.float64))[:, ::-1])
    return found


@jax.jit
def _dense(blocks: UnitBlocks, chosen: Int[Array, " unit"]) -> Float[Array, "unit side side"]:
    """The blocks of some units as matrices."""
    return UnitBlocks(blocks.inputs, blocks.curvature[chosen]).dense()


def summary(
    stack: tuple[UnitBlocks, ...], values: list[np.ndarray], damping: float, count: int
) -> list[dict[str, Any]]:
    """Per layer: sizes, eigenvalues, damped condition, and what each solver would store with `count` rows."""
    rows = []
    for blocks, eigenvalues in zip(stack, values, strict=True):
        units, stored = blocks.curvature.shape[0], count if len(blocks.inputs) else 1  # the prior's one row
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
                "dual_mb": mega(units * stored**2 + blocks.size * stored),
                "shared_mb": mega((units + blocks.size) * min(stored, blocks.size, RANK)),
                "cg_mb": mega((units + blocks.size) * stored),
                "diagonal_mb": mega(units * blocks.size),
            }
        )
    return rows


def table(
    networks: Networks, stacks: BlockStacks, values: Spectra, *, damping: float, count: int
) -> list[dict[str, Any]]:
    """The summaries of all layers; layers are counted through the parts of a network."""
    found = []
    for parts in networks.values():
        layers = itertools.count()
        for part in parts:
            rows = summary(stacks[part], values[part], damping, count)
            found += [{"network": part, "layer": next(layers)} | row for row in rows]
    return found


def picture(path: Path, networks: Networks, stacks: BlockStacks, values: Spectra) -> None:
    """Write a PNG: the block structure of both networks to scale, one block each, and the spectra."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 9), dpi=120, layout="constrained")
    axes = figure.subplots(2, 2)
    for column, (name, parts) in enumerate(networks.items()):
        layers = [(part, number) for part in parts for number in range(len(stacks[part]))]
        labels = [f"layer {number}" if part == name else part for part, number in layers]
        _structure(axes[0, column], name, labels, [blocks for part in parts for blocks in stacks[part]])
        _curves(axes[1, column], name, labels, [layer for part in parts for layer in values[part]])
    save_figure(path, figure)


def _structure(axes: Any, name: str, labels: list[str], stack: list[UnitBlocks], units: int = 6) -> None:
    """The diagonal of the Fisher matrix: the first units of every layer, the rest is zero."""
    shown = [np.asarray(_dense(blocks, np.arange(min(units, blocks.units)))) for blocks in stack]
    side = sum(block.shape[0] * block.shape[1] for block in shown)
    axes.set_aspect("equal")
    start = 0
    top = max(float(np.abs(block).max()) for block in shown)
    for label, blocks in zip(labels, shown, strict=True):
        first = start
        for block in blocks:
            extent = (start, start + len(block), start + len(block), start)
            axes.imshow(block, extent=extent, cmap="RdBu_r", vmin=-top, vmax=top, interpolation="nearest")
            start += len(block)
        axes.plot(
            [first, start, start, first, first], [first, first, start, start, first], color="0.6", lw=0.8
        )
        axes.annotate(label, (start, first), textcoords="offset points", xytext=(4, -8), fontsize=7)
    axes.set_xlim(0, side)
    axes.set_ylim(side, 0)
    axes.set_title(f"{name}: one block per unit ({units} units of each layer)", fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])


def _curves(axes: Any, name: str, labels: list[str], values: list[np.ndarray]) -> None:
    for label, eigenvalues in zip(labels, values, strict=True):
        if eigenvalues.shape[1] == 1:  # nothing to average within a block: the units' own, in order
            label, mean = f"{label}, unit by unit", np.sort(eigenvalues[:, 0])[::-1].clip(1e-9)
        else:
            mean = np.exp(np.log(eigenvalues.clip(1e-9)).mean(axis=0))
        axes.semilogy(np.arange(1, len(mean) + 1) / len(mean), mean, marker=".", ms=3, lw=1, label=label)
    axes.set_ylim(bottom=1e-6)
    axes.set_xlabel("eigenvalue number / block size")
    axes.set_ylabel("eigenvalue (geometric mean over units)")
    axes.set_title(f"{name}: spectra", fontsize=9)
    axes.legend(fontsize=7)
