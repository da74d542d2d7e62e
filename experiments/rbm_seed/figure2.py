"""The report's second figure: test error and likelihood over thresholds and shares of the practical penalty.

    python -m experiments.rbm_seed.figure2

reads `figure2_classes.jsonl`, which `experiments.rbm_seed.classes` makes of the sweep of `figure2.toml`, and
from the classes of `config.toml` the same training without a penalty, with the same seeds. Writes
`figure2_grid.md` and `figure2_grid.png`; nothing is trained.
"""

from pathlib import Path

import numpy as np

from experiments.rbm_seed.classes import lines_of, read

FILE = Path(__file__).with_name("figure2.toml")
GRID = FILE.with_name("figure2_grid.md")
OTHER = FILE.with_name("config.toml")
THRESHOLD, SHARE = "objective.threshold", "objective.share"
PANELS = {
    "test_ll": ("test log-likelihood (nats)", "{:.2f}", 1.0),
    "test_error": ("test error of a logistic regression on hidden means (percent)", "{:.1f}", 100.0),
    "hoyer": ("Hoyer's sparsity of the weights (percent)", "{:.1f}", 100.0),
    "gamma": ("gamma at the end", "{:.0e}", 1.0),
}


def trials(file: Path = FILE) -> list[dict]:
    """The classes' lines."""
    return [line for line in read(lines_of(file)) if line["variant"] != "pixels"]


def without_penalty(seeds: set[int]) -> list[dict]:
    """The same training, rate and seeds without a penalty, on the same machine."""
    return [line for line in trials(OTHER) if line["variant"] == "exact" and line["seed"] in seeds]


def grid(lines: list[dict], column: str) -> tuple[list[float], list[float], np.ndarray]:
    """Thresholds, shares, and the means over seeds [threshold, share]."""
    thresholds, shares = (sorted({line["settings"][name] for line in lines}) for name in (THRESHOLD, SHARE))

    def mean(threshold: float, share: float) -> float:
        own = [line for line in lines if line["settings"] == {THRESHOLD: threshold, SHARE: share}]
        return float(np.mean([line[column] for line in own])) if own else np.nan

    return thresholds, shares, np.array([[mean(one, other) for other in shares] for one in thresholds])


def plain(lines: list[dict], column: str) -> str:
    """What the training without a penalty has, as words."""
    _, form, scale = PANELS[column]
    values = [scale * line[column] for line in lines if column in line]
    if not values:
        return ""
    deviation = f", sd {form.format(np.std(values, ddof=1))} over seeds" if len(values) > 1 else ""
    return f"without the penalty {form.format(np.mean(values))}{deviation}"


def page(lines: list[dict]) -> str:
    """A table for every column: thresholds down, shares across."""
    seeds = {line["seed"] for line in lines}
    others, parts = without_penalty(seeds), []
    for column, (title, form, scale) in PANELS.items():
        thresholds, shares, values = grid(lines, column)
        beside = plain(others, column)
        parts += [
            f"**{title}**, seeds {', '.join(map(str, sorted(seeds)))}" + (f"; {beside}" if beside else "")
        ]
        rows = [f"| threshold | {' | '.join(f'share {share:g}' for share in shares)} |"]
        rows.append("|" + "---|" * (len(shares) + 1))
        for threshold, row in zip(thresholds, values, strict=True):
            rows.append(f"| {threshold:g} | {' | '.join(form.format(scale * value) for value in row)} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def draw(lines: list[dict], path: Path) -> None:
    """The grids as pictures, with their numbers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 8), dpi=110, layout="constrained")
    others = without_penalty({line["seed"] for line in lines})
    for axes, (column, (title, form, scale)) in zip(
        figure.subplots(2, 2).ravel(), PANELS.items(), strict=True
    ):
        thresholds, shares, values = grid(lines, column)
        drawn = np.log10(values) if column == "gamma" else values
        axes.imshow(drawn, aspect="auto", cmap="viridis")
        middle = (np.nanmin(drawn) + np.nanmax(drawn)) / 2
        for (row, place), value in np.ndenumerate(values):
            color = "white" if drawn[row, place] < middle else "black"
            axes.text(
                place, row, form.format(scale * value), ha="center", va="center", color=color, fontsize=9
            )
        axes.set_xticks(range(len(shares)), [f"{share:g}" for share in shares])
        axes.set_yticks(range(len(thresholds)), [f"{threshold:g}" for threshold in thresholds])
        axes.set_xlabel("share of large entries above which gamma rises")
        axes.set_ylabel("threshold")
        axes.set_title("\n".join(filter(None, [title, plain(others, column)])), fontsize=10)
    figure.savefig(path)


def main() -> None:
    lines = trials()
    GRID.write_text(page(lines))
    draw(lines, GRID.with_suffix(".png"))
    print(page(lines))


if __name__ == "__main__":
    main()
