"""Median exact KL against steps, from config.jsonl only."""

import json
from pathlib import Path

import numpy as np

from natgrad.sweep.values import by_dotted_name

HERE = Path(__file__).parent


def label(row: dict) -> str:
    chosen = by_dotted_name(row["settings"])
    damping = f", damping {chosen['metric.damping']}" if "metric.damping" in chosen else ""
    return f"{row['variant']}, rate {chosen['optimizer.learning_rate']}{damping}"


def main() -> None:
    from matplotlib.figure import Figure

    rows = [json.loads(line) for line in (HERE / "config.jsonl").read_text().splitlines()]
    medians = [np.median(row["kl"], axis=0) for row in rows]
    steps = np.arange(len(medians[0])) * rows[0]["every"]
    plain = [curve for row, curve in zip(rows, medians, strict=True) if row["variant"] == "rws"]
    goal = min(curve[-1] for curve in plain)
    lines = [
        "| method | final KL, median | quartiles | steps to the best RWS's final KL |",
        "|---|---|---|---|",
    ]
    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    axes = figure.subplots()
    for row, curve in zip(rows, medians, strict=True):
        low, high = np.quantile(np.array(row["kl"])[:, -1], [0.25, 0.75])
        reached = np.flatnonzero(curve <= goal)
        when = f"{steps[reached[0]]:,}" if len(reached) else "not reached"
        lines.append(f"| {label(row)} | {curve[-1]:.4f} | {low:.4f} to {high:.4f} | {when} |")
        style = {"rws": ":", "rws + adam": "--", "nrws": "-"}[row["variant"]]
        axes.loglog(np.maximum(steps, 100), curve, style, label=label(row))
    axes.axhline(goal, color="0.7", lw=0.8)
    axes.set_xlabel("steps")
    axes.set_ylabel(f"KL(data || model) in nats, median of {len(rows[0]['kl'])} seeds")
    axes.legend(fontsize=7)
    figure.savefig(HERE / "figure.png")
    (HERE / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
