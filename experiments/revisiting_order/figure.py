"""The figure and the table of the variances that `run` computed.

python -m experiments.revisiting_order.figure [experiments/revisiting_order/config.jsonl]
"""

import argparse
import json
from pathlib import Path

import numpy as np

NAMES = {"natural": "natural gradient", "msgd": "MSGD"}


def main() -> None:
    from matplotlib.figure import Figure

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="?", default=Path(__file__).with_name("config.jsonl"))
    path = parser.parse_args().results
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    table = [
        "| method | rate | validation error | variance, first tenth | last tenth | mean |",
        "|---" * 6 + "|",
    ]
    figure = Figure(figsize=(6, 4.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    for method, name in NAMES.items():
        own = sorted((line for line in lines if line["method"] == method), key=lambda line: line["segment"])
        values = np.array([line["variance"] for line in own])
        axes.plot([line["segment"] + 1 for line in own], values, marker="o", lw=1.2, label=name)
        line = f"| {name} | {own[0]['rate']} | {100 * own[0]['valid_error']:.2f} % "
        table.append(line + f"| {values[0]:.3g} | {values[-1]:.3g} | {values.mean():.3g} |")
    axes.set(
        xlabel="which tenth of the first half was replaced", ylabel="variance of the class probabilities"
    )
    axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path.with_suffix(".png"))
    path.with_suffix(".md").write_text("\n".join(table) + "\n")
    print("\n".join(table))


if __name__ == "__main__":
    main()
