"""The table and figure of a grid: each variant at its own best setting, chosen on validation data.

    python -m experiments.table experiments/nrws_choices/config.jsonl

writes `<name>.md` and `<name>.png` beside the results. Values are means over the seeds that confirm
a setting (`winner_seeds` in `<name>.toml`), never over the seed that chose it, unless it ran alone. Settings
are chosen by the config's `judge`; the columns are `valid_ll` and `test_ll`, or the config's `columns`.
"""

import argparse
import json
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Words(NamedTuple):
    """What a grid is judged by, and the two columns that are told."""

    judge: str = "valid_ll"
    valid: str = "valid_ll"
    test: str = "test_ll"


def words(path: Path) -> Words:
    """What the config beside the results says."""
    config = (
        tomllib.loads(path.with_suffix(".toml").read_text()) if path.with_suffix(".toml").exists() else {}
    )
    judge = config.get("judge", "valid_ll")
    return Words(judge, *config.get("columns", ["valid_ll", "test_ll"]))


def text(name: str, value: float) -> str:
    """A value as its column has it: shares of wrong classes in per cent."""
    return f"{100 * value:.2f} %" if name.endswith("_error") and "squared" not in name else f"{value:.2f}"


def title(name: str) -> str:
    split, _, what = name.partition("_")
    return ("validation " if split == "valid" else "test ") + what.replace("ll", "LL").replace("_", " ")


def grouped(path: Path) -> dict[str, dict[str, list[dict]]]:
    """Trials by variant and setting; a setting's trials differ in the seed only."""
    config = path.with_suffix(".toml")
    confirming = tomllib.loads(config.read_text()).get("winner_seeds", []) if config.exists() else []
    found: dict[str, dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for line in path.read_text().splitlines():
        trial = json.loads(line)
        found[trial["variant"]][json.dumps(trial["settings"], sort_keys=True)].append(trial)
    return {
        name: {setting: confirmed(trials, confirming) for setting, trials in settings.items()}
        for name, settings in found.items()
    }


def confirmed(trials: list[dict], seeds: list[int]) -> list[dict]:
    """The trials whose seed had no part in choosing the setting; all where there are none."""
    return [trial for trial in trials if trial["seed"] in seeds] or trials


def final(trials: list[dict], name: str) -> float:
    return float(np.mean([trial["rows"][-1][name] for trial in trials]))


def reached(trials: list[dict], judge: str) -> float:
    """How good trials are; of anything but a likelihood, less is better."""
    return final(trials, judge) * (1 if judge.endswith("_ll") else -1)


def best(settings: dict[str, list[dict]], judge: str) -> list[dict]:
    """The trials of the setting that is best on validation data; most seeds first."""
    most = max(len(trials) for trials in settings.values())
    full = [trials for trials in settings.values() if len(trials) == most]
    return max(full, key=lambda trials: reached(trials, judge))


def differing(found: dict[str, dict[str, list[dict]]]) -> list[str]:
    """The settings in which the trials of a grid differ."""
    values = defaultdict(set)
    total = 0
    for settings in found.values():
        for text in settings:
            total += 1
            for key, value in json.loads(text).items():
                values[key].add(json.dumps(value))
    counts = {key: sum(key in json.loads(t) for s in found.values() for t in s) for key in values}
    return [key for key in values if len(values[key]) > 1 or counts[key] < total]


def rows(found: dict[str, dict[str, list[dict]]], said: Words) -> list[str]:
    """One line per variant, the best first."""
    keys = [key for key in differing(found) if key != "method"]
    lines = [
        f"| variant | setting | seeds | {title(said.valid)} | {title(said.test)} | epochs | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    chosen = {name: best(settings, said.judge) for name, settings in found.items()}
    for name in sorted(chosen, key=lambda name: -reached(chosen[name], said.judge)):
        trials = chosen[name]
        setting = ", ".join(
            f"{k.split('.')[-1]} {trials[0]['settings'][k]}" for k in keys if k in trials[0]["settings"]
        )
        spread = (
            np.std([t["rows"][-1][said.test] for t in trials], ddof=1) if len(trials) > 1 else float("nan")
        )
        test = text(said.test, final(trials, said.test))
        test += f" (sd {text(said.test, spread)})" if len(trials) > 1 else ""
        lines.append(
            f"| {name} | {setting} | {len(trials)} | {text(said.valid, final(trials, said.valid))} | {test} "
            f"| {trials[0]['rows'][-1]['epoch']} | {final(trials, 'seconds'):.0f} |"
        )
    return lines


def draw(found: dict[str, dict[str, list[dict]]], path: Path, said: Words) -> None:
    """The test column against epochs and against seconds of training."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for name, settings in found.items():
        trials = best(settings, said.judge)
        curves = np.array([[row[said.test] for row in trial["rows"][1:]] for trial in trials]).mean(axis=0)
        for axes, key in ((left, "epoch"), (right, "seconds")):
            at = np.array([[row[key] for row in trial["rows"][1:]] for trial in trials]).mean(axis=0)
            axes.plot(at, curves, marker=".", lw=1.2, label=name)
    left.set_xlabel("epochs")
    right.set_xlabel("seconds of training")
    left.set_ylabel("test log-likelihood (nats)" if said.test == "test_ll" else title(said.test))
    if not said.test.endswith("_ll"):
        left.set_yscale("log")
    left.grid(alpha=0.3)
    right.grid(alpha=0.3)
    right.legend(fontsize=7)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    path = parser.parse_args().results
    found, said = grouped(path), words(path)
    lines = rows(found, said)
    path.with_suffix(".md").write_text("\n".join(lines) + "\n")
    draw(found, path.with_suffix(".png"), said)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
