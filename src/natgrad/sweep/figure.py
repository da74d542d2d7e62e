"""The picture of a sweep: the curves of the best settings, and where every trial ended."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from natgrad.evaluate.pictures import save_figure
from natgrad.sweep.choice import is_number
from natgrad.sweep.record import TraceRows

SHOWN = 8  # settings whose curves are drawn: the best
LISTED = 40  # settings whose ends are


class SettingCurves(NamedTuple):
    """A setting in the picture: its name, and the rows of each of its trials."""

    name: str
    trials: list[TraceRows]


def draw_sweep(path: Path, settings: Sequence[SettingCurves], *, column: str, title: str) -> None:
    """Left the curves of the best settings, right every seed of every setting; settings come best first."""
    from matplotlib.figure import Figure

    listed = settings[:LISTED]
    figure = Figure(figsize=(12, max(4.2, 0.28 * len(listed) + 1.5)), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, setting in enumerate(listed):
        curves = [curve for rows in setting.trials if (curve := _curve(rows, column))]
        color = f"C{number}" if number < SHOWN else "0.6"
        for curve in curves if number < SHOWN else []:
            name = f"{number + 1}" if curve is curves[0] else None
            left.plot(*zip(*curve, strict=True), color=color, lw=1, label=name)
        right.plot([curve[-1][1] for curve in curves], [number] * len(curves), "o", color=color, ms=5)
    left.set(xlabel="epoch", ylabel=title, title="the best settings, every seed")
    if left.lines:
        left.legend(fontsize=8)
    names = [f"{number + 1}: {setting.name}" for number, setting in enumerate(listed)]
    right.set(xlabel=f"{title} at the end", title="every setting, every seed")
    right.set_yticks(range(len(names)), names, fontsize=8)
    right.invert_yaxis()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    save_figure(path, figure)


def _curve(rows: TraceRows, column: str) -> list[tuple[Any, Any]]:
    """Epochs and values, without the start."""
    return [(row["epoch"], row[column]) for row in rows[1:] if is_number(row.get(column))]
