"""A run as a notebook shows it: a few lines, or a learning curve beside the model's picture."""

from pathlib import Path
from typing import Any

from natgrad.errors import unknown
from natgrad.evaluate.notebook import html_with_pictures, png_of
from natgrad.models import registry
from natgrad.models.registry import COLUMNS, Spec


def run_text(run: Any) -> str:
    """A run in three lines."""
    rows = run.trace
    epochs = f"epoch {rows[-1]['epoch']} of {run.config.training.epochs}" if rows else "no epoch"
    best = f", the best is {run.summary['best_epoch']}" if "best_epoch" in run.summary else ""
    named = f"{run.config.model.kind}, {run.config.method} on {Path(run.config.data.name).name}"
    figures = ", ".join(f"{title} {value:.6g}" for title, value in run_figures(run).items())
    return "\n  ".join(filter(None, (f"Run {run.folder}: {named}", epochs + best, figures)))


def run_figures(run: Any) -> dict[str, float]:
    """The figure that a run is reported by, on validation and on test data, by title."""
    spec = registry.spec_of(run.config.model.kind)
    test = spec.headline_of(run.summary)
    titles = {column.name: column.title for column in (*COLUMNS, *spec.columns)}
    names = dict.fromkeys((test.replace("test_", "valid_", 1), test))
    found = {titles.get(name, name): run.summary.get(name) for name in names}
    return {title: value for title, value in found.items() if isinstance(value, int | float)}


def run_html(run: Any) -> str:
    """The same lines, the learning curve and the picture of a run."""
    pictures = [png_of(drawn_curves(run))] if run.trace else []
    if (samples := run.folder / "samples.png").is_file():
        pictures.append(samples.read_bytes())
    return html_with_pictures(run_text(run), pictures)


def drawn_curves(run: Any, column: str | None = None) -> Any:
    """Training and validation loss, or one column of the trace, against epochs, as matplotlib's figure."""
    if column is not None and column not in (known := {name for row in run.trace for name in row}):
        raise unknown("column", str(column), known)
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(5, 3.2), dpi=110, layout="constrained")
    axes = figure.subplots()
    spec: Spec = registry.spec_of(run.config.model.kind)
    for name in (column,) if column else ("train_loss", "valid_loss"):
        points = [(row["epoch"], row[name]) for row in run.trace if row.get(name) is not None]
        axes.plot(*zip(*points, strict=True), marker=".", label=name.replace("_", " ")) if points else None
    if (best := run.summary.get("best_epoch")) is not None:
        axes.axvline(best, color="0.7", lw=1, zorder=0, label=f"best by {spec.criterion.replace('_', ' ')}")
    axes.set(xlabel="epoch", ylabel=column or "loss")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return figure
