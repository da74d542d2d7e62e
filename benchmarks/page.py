"""The measured figures as a page: from the JSON lines of the benchmarks to docs/figures.md.

    python -m benchmarks.step --arch mini --json > benchmarks/results/step_mini.json   # and --arch mnist
    python -m benchmarks.accuracy --arch mnist --json > benchmarks/results/accuracy.json
    python -m benchmarks.growth --json > benchmarks/results/growth.json
    python -m benchmarks.evaluation --json > benchmarks/results/evaluation.json
    python -m benchmarks.boltzmann --json > benchmarks/results/boltzmann.json
    python -m benchmarks.vae --json > benchmarks/results/vae.json
    python -m benchmarks.sketches --json > benchmarks/results/sketches.json
    python -m benchmarks.quality --json --figure docs/quality.png > benchmarks/results/quality.json
    python -m benchmarks.page

A benchmark whose result is not there is left out.
"""

import json
from pathlib import Path

RESULTS, PAGE = Path("benchmarks/results"), Path("docs/figures.md")
TARGETS = {
    "rws_over_floor": {"mnist": 1.3, "mini": 1.8},
    "nrws_fresh_over_rws": {"mnist": 1.6},
    "direction_error": {"mnist": 0.05},
    "nrws_frozen_over_rws": {"mnist": 1.15},
    "frozen_direction_error": {},
    "frozen_direction_error_stale": {},
    "dnrws_over_rws": {},
    "metric_mb": {"mnist": 20.0},
    "metric_frozen_mb": {"mnist": 30.0},
    "rws_compile_seconds": {"mnist": 10.0},
    "nrws_compile_seconds": {"mnist": 20.0},
}


def read(name: str) -> dict | None:
    """A result, where there is one."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text().splitlines()[-1]) if path.exists() else None


def steps() -> list[str]:
    """One line per figure, a column per architecture, with the target."""
    found = {arch: result for arch in ("mini", "mnist") if (result := read(f"step_{arch}"))}
    lines = ["## A step", "", "| | " + " | ".join(f"{arch} | target" for arch in found) + " |"]
    lines.append("|---" * (1 + 2 * len(found)) + "|")
    for key, targets in TARGETS.items():
        cells = [f"{result[key]:.3g} | {targets.get(arch, '')}" for arch, result in found.items()]
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    for arch, result in found.items():
        plain, products = result["rws_ms"], result["floor_ms"]
        lines.append(f"\n{arch}: a plain step takes {plain:.2f} ms, its products {products:.2f} ms.")
    return lines


ACCURACY = {
    "iterations_after_rws": ("iterations, after 500 steps of RWS", "error"),
    "iterations_later": ("iterations, 1,000 natural steps later", "error"),
    "directions_own": ("directions of a kept Fisher", "error on its own rows"),
    "directions_stale": ("directions of a kept Fisher", "error 1,000 steps later"),
}


def accuracy() -> list[str]:
    """The errors of natural directions, a table for each way to vary them."""
    found = read("accuracy")
    if not found:
        return []
    lines = ["", f"## Accuracy of a direction ({found['arch']})"]
    for key, (varied, name) in ACCURACY.items():
        lines += ["", f"| {varied} | " + " | ".join(found[key]) + " |", "|---" * (1 + len(found[key])) + "|"]
        lines.append(f"| {name} | " + " | ".join(f"{value:.2g}" for value in found[key].values()) + " |")
    return lines


def growth() -> list[str]:
    """The fitted exponents and the measured points."""
    found = read("growth")
    if not found:
        return []
    lines = [
        "",
        "## Growth",
        "",
        "| varied | size | products ms | RWS ms | NRWS ms | NRWS / RWS | metric MB |",
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for name, series in found.items():
        for row in series["rows"]:
            times = " | ".join(
                f"{row[key]:.3g}" for key in ("floor_ms", "rws_ms", "nrws_ms", "nrws_over_rws")
            )
            lines.append(f"| {name} | {row['size']} | {times} | {row['metric_mb']:.2f} |")
        powers = series["exponents"]
        cells = " | ".join(f"{powers[key]:.2f}" for key in ("floor", "rws", "nrws"))
        lines.append(f"| {name} | *exponent* | {cells} | | {powers['metric_mb']:.2f} |")
    for name in ("visible", "hidden"):
        lines.append(
            f"\nA natural step would take a second at about {found[name]['one_second_at']:.2g} {name} units."
        )
    return lines


def evaluation() -> list[str]:
    """The likelihood's cost over its products."""
    found = read("evaluation")
    if not found:
        return []
    return [
        "",
        "## Evaluation",
        "",
        f"{found['samples']} samples on {found['rows']} rows ({found['arch']}, {found['memory_mb']:.0f} MB): "
        f"{found['evaluation_over_floor']:.2f} times its matrix products (target 1.5).",
    ]


OTHER_KINDS = {
    "boltzmann": (
        "Boltzmann machines",
        {
            "plain_over_floor": "at most 1.5",
            "natural_over_plain": "at most 2",
            "natural_kept_over_plain": "",
            "sklearn_over_plain": "at least 3",
            "annealing_seconds": "at most 20",
            "annealing_over_floor": "",
        },
    ),
    "vae": (
        "Variational autoencoders",
        {
            "two_step_over_adam": "at most 3",
            "two_step_units_over_adam": "",
            "two_step_units_kept_over_adam": "",
            "two_step_dual_over_adam": "",
            "two_step_diagonal_over_adam": "",
            "two_step_cg_over_adam": "",
            "natural_over_adam": "",
        },
    ),
}


def other_kinds() -> list[str]:
    """A table for each of the other kinds of model: figures and what they should be."""
    lines = []
    for name, (title, aims) in OTHER_KINDS.items():
        if found := read(name):
            lines += [
                "",
                f"## A step: {title.lower()}",
                "",
                "| | measured | CPU time | target |",
                "|---" * 4 + "|",
            ]
            for key, aim in aims.items():
                cpu = f"{found[f'{key}_cpu']:.3g}" if f"{key}_cpu" in found else ""
                lines.append(f"| {key} | {found[key]:.3g} | {cpu} | {aim} |")
    return lines


def quality() -> list[str]:
    """Where every method is when its time is over."""
    found = read("quality")
    if not found:
        return []
    lines = [
        "",
        "## Likelihood against seconds",
        "",
        f"{found['minutes']:g} minutes of training for each:",
        "",
    ]
    lines += ["| data | method | rate | epochs | seconds | validation | test |", "|---" * 7 + "|"]
    for trial in found["trials"]:
        last = trial["rows"][-1]
        ends = f"{last['seconds']:.0f} | {last['valid_ll']:.2f} | {last['test_ll']:.2f}"
        lines.append(
            f"| {trial['data']} | {trial['method']} | {trial['learning_rate']} | {trial['epochs']} | {ends} |"
        )
    return [*lines, "", "![Test likelihood against seconds](quality.png)"]


def sketches() -> list[str]:
    """Iterations by damping and rank; the shares that may be left are columns."""
    found = read("sketches")
    if not found:
        return []
    shares = [key for key in found[0] if key.startswith("to_")]
    lines = ["", "## Sketches of a metric", "", "Iterations until a share of the gradient is left:", ""]
    lines.append("| damping | rank | " + " | ".join(key.removeprefix("to_") for key in shares) + " |")
    lines.append("|---" * (2 + len(shares)) + "|")
    for row in found:
        cells = " | ".join("not in 300" if row[key] is None else str(row[key]) for key in shares)
        lines.append(f"| {row['damping']:g} | {row['rank']} | {cells} |")
    return lines


def main() -> None:
    head = [
        "# Measured figures",
        "",
        "Written by `python -m benchmarks.page`; what they mean is in [performance.md](performance.md).",
    ]
    PAGE.write_text(
        "\n".join(
            [
                *(*head, "", *steps(), *accuracy(), *growth(), *evaluation(), *other_kinds()),
                *(*sketches(), *quality()),
            ]
        )
        + "\n"
    )
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
