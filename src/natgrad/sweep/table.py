"""The settings of a sweep side by side: means over seeds, ordered by validation; test is only reported."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from natgrad.evaluate.pictures import save_figure
from natgrad.records import folder
from natgrad.sweep import plan as plans
from natgrad.sweep.plan import Section, Setting

SHOWN = 8  # curves in the figure: the best settings


def judged(run: Path, objective: str) -> dict[str, Any] | None:
    """The row of a trial's trace that counts: the last, or the best on validation; None if none is finite."""
    rows = [row for row in folder.trace(run) if _is_number(row.get("valid_ll"))]
    if not rows:
        return None
    return rows[-1] if objective == "last" else max(rows, key=lambda row: row["valid_ll"])


def compare(section: Section, settings: Sequence[Setting], place: Path) -> list[dict[str, Any]]:
    """A record per setting, the best validation likelihood first; settings without any come last."""
    names = varied(settings)
    records = []
    for setting in settings:
        runs = [plans.name_of(plans.resolved(setting, seed)) for seed in section.seeds]
        rows = [row for run in runs if (row := judged(place / run, section.objective)) is not None]
        shown = {name: setting[name] for name in names if name in setting}
        records.append({"setting": shown, "seeds": len(rows), **_means(rows), "runs": runs})
    return sorted(records, key=lambda record: (record["seeds"] < len(section.seeds), -_order(record)))


def varied(settings: Sequence[Setting]) -> list[str]:
    """The names of what differs between settings."""
    names = dict.fromkeys(name for setting in settings for name in setting)
    return [name for name in names if len({json.dumps(each.get(name)) for each in settings}) > 1]


def write(
    place: Path, section: Section, records: list[dict[str, Any]], failed: Mapping[str, str]
) -> dict[str, Any]:
    """Write table.md, table.json and sweep.png; return what they hold."""
    found = {
        "sweep": str(place),
        "objective": f"{section.objective} valid_ll",
        "settings": records,
        "failed": dict(failed),
        "table": str(place / "table.md"),
        "picture": str(place / "sweep.png"),
    }
    folder.write(place / "table.json", folder.json_line(found) + "\n")
    folder.write(place / "table.md", "\n".join(markdown(records)) + "\n")
    _draw(place, records)
    return found


def markdown(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table as lines of Markdown."""
    names = list(dict.fromkeys(name for record in records for name in record["setting"]))
    lines = [f"| {' | '.join([*names, *HEADS])} |", "|" + " --- |" * (len(names) + len(HEADS))]
    for record in records:
        cells = [text(record["setting"].get(name, "")) for name in names]
        lines.append(f"| {' | '.join([*cells, *figures(record)])} |")
    return lines


def figures(record: Mapping[str, Any]) -> list[str]:
    """A record's numbers as text, in the order of `HEADS`."""
    both = [_spread(record, name) for name in ("valid_ll", "test_ll")]
    plain = [_number(record[name], digits) for name, digits in (("epoch", 0), ("seconds", 1))]
    return [str(record["seeds"]), *both, *plain]


def text(value: Any) -> str:
    """A setting's value, short: lists of sizes as 64-16."""
    return "-".join(text(inner) for inner in value) if isinstance(value, list | tuple) else f"{value}"


def label(record: Mapping[str, Any]) -> str:
    """A setting in a few words."""
    parts = [f"{name.split('.')[-1]} {text(value)}" for name, value in record["setting"].items()]
    return ", ".join(parts) or "the only setting"


HEADS = ("seeds", "valid LL", "test LL", "epoch", "seconds")  # likelihoods ± their deviation over seeds


def _means(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over seeds, and the standard deviation of the likelihoods where there are several."""
    found: dict[str, Any] = {}
    for name in ("valid_ll", "test_ll", "epoch", "seconds"):
        values = [row[name] for row in rows if _is_number(row.get(name))]
        found[name] = statistics.fmean(values) if values else None
        if name.endswith("_ll"):
            found[f"{name}_sd"] = statistics.stdev(values) if len(values) > 1 else None
    return found


def _order(record: Mapping[str, Any]) -> float:
    return -math.inf if record["valid_ll"] is None else record["valid_ll"]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _spread(record: Mapping[str, Any], name: str) -> str:
    spread = record[f"{name}_sd"]
    return _number(record[name], 3) + ("" if spread is None else f" ±{spread:.3f}")


def _draw(place: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Left the validation curves of the best settings, right every seed of every setting."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, max(4.2, 0.28 * min(len(records), 40) + 1.5)), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, record in enumerate(records[:40]):
        traces = [list(folder.trace(place / run)) for run in record["runs"]]
        curves = [
            [(row["epoch"], row["valid_ll"]) for row in rows[1:] if _is_number(row.get("valid_ll"))]
            for rows in traces
        ]
        color = f"C{number}" if number < SHOWN else "0.6"
        for curve in curves if number < SHOWN else []:
            title = f"{number + 1}" if curve is curves[0] else None
            left.plot([at for at, _ in curve], [value for _, value in curve], color=color, lw=1, label=title)
        ends = [curve[-1][1] for curve in curves if curve]
        right.plot(ends, [number] * len(ends), "o", color=color, ms=5)
    left.set(xlabel="epoch", ylabel="validation log-likelihood (nats)", title="the best settings, every seed")
    if left.lines:
        left.legend(fontsize=8)
    names = [f"{number + 1}: {label(record)}" for number, record in enumerate(records[:40])]
    right.set(xlabel="validation log-likelihood at the end (nats)", title="every setting, every seed")
    right.set_yticks(range(len(names)), names, fontsize=8)
    right.invert_yaxis()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    save_figure(place / "sweep.png", figure)
