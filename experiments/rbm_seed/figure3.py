"""The report's third figure: the weights of machines trained with the practical penalty and without it.

    python -m experiments.rbm_seed.figure3 [TRIALS OTHER_TRIALS]

With the folders of the trials of `figure2.toml` and of `config.toml` the weights are collected into
`figure3.json`: without a penalty, with the setting of the second figure that is best on validation rows, and
with the one whose weights are sparsest. `figure3.png` is drawn from that file.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from experiments import table
from experiments.rbm_seed import figure2
from experiments.rbm_seed.classes import machine_of, sparsity
from natgrad.sweep import plan as plans

FILE = Path(__file__).with_name("figure3.json")
SEED = 1


def chosen() -> dict[str, dict]:
    """The classes' lines of the setting that is best on validation rows, and of the sparsest."""
    lines = figure2.trials()

    def extreme(column: str) -> dict:
        thresholds, shares, values = figure2.grid(lines, column)
        row, place = np.unravel_index(np.nanargmax(values), values.shape)
        return {figure2.THRESHOLD: thresholds[row], figure2.SHARE: shares[place]}

    return {"penalty, best on validation": extreme("valid_ll"), "penalty, sparsest": extreme("hoyer")}


def collect(trials: Path, others: Path) -> None:
    """Read the machines, and keep their weights."""
    first = table.results(figure2.OTHER)
    exact = next(
        each for each in first.candidates if same(each.setting, table.best(first)["exact"][0]["settings"])
    )
    kept = {"without a penalty": weights(exact.setting, others)}
    candidates = table.results(figure2.FILE).candidates
    for name, setting in chosen().items():
        found = next(each for each in candidates if setting.items() <= each.setting.items())
        label = ", ".join(f"{key.split('.')[1]} {value:g}" for key, value in setting.items())
        kept[f"{name} ({label})"] = weights(found.setting, trials)
    FILE.write_text(json.dumps({"seed": SEED, "weights": kept}) + "\n")


def same(setting: dict, other: dict) -> bool:
    return plans.name_of(plans.resolved(setting, SEED)) == plans.name_of(plans.resolved(other, SEED))


def weights(setting: dict, trials: Path) -> list[list[float]]:
    """The weights [hidden, visible] of a trial, the longest hidden unit first."""
    weight = np.asarray(machine_of(plans.resolved(setting, SEED), trials).model.parameters.weight, float)
    order = np.argsort(-np.linalg.norm(weight, axis=1))
    return np.round(weight[order], 4).tolist()


def draw(path: Path) -> None:
    """A row of filters for every machine, and beside it how large its weights are."""
    from matplotlib.figure import Figure

    found = json.loads(FILE.read_text())["weights"]
    figure = Figure(figsize=(14, 1.9 * len(found)), dpi=110, layout="constrained")
    for part, (name, values) in zip(figure.subfigures(len(found), 1), found.items(), strict=True):
        row, weight = part.subplots(1, 11, width_ratios=[1] * 10 + [2]), np.array(values)
        top, told = np.abs(weight).max(), sparsity(weight)
        for place, image in zip(row, weight, strict=False):
            place.imshow(image.reshape(8, 8), cmap="RdBu_r", vmin=-top, vmax=top)
            place.set_axis_off()
        words = f"{100 * told['small']:.0f} % near zero, Hoyer {100 * told['hoyer']:.0f} %"
        part.suptitle(f"{name}: {words}", fontsize=10)
        row[-1].hist(np.abs(weight).ravel() / top, bins=40, range=(0, 1), color="gray")
        row[-1].set_xlabel("|weight| over the largest", fontsize=8)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trials", type=Path, nargs="*", help="the folders of both sweeps' trials")
    if folders := parser.parse_args().trials:
        collect(*folders)
    draw(FILE.with_suffix(".png"))


if __name__ == "__main__":
    main()
