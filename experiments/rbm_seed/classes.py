"""Test error of a logistic regression on hidden means, and how sparse the weights are.

    python -m experiments.rbm_seed.classes experiments/rbm_seed/config.toml TRIALS

For every trial of a sweep's record that counts (the best setting of every variant with the seeds that confirm
it; all trials of a sweep that has no such seeds) its machine is read from the folder of the sweep's trials,
or trained again if it is not there. `<name>_classes.jsonl` gets a line for each; `<name>_classes.md` has the
means over seeds. Without a folder only the table is made. Validation rows choose the strength of the
regression.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from experiments import table
from natgrad.sweep import plan as plans
from natgrad.sweep.choice import Results, best_candidates

MOST_FEATURES = 64  # for which a Hessian is quick
STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0)
KEPT = ("valid_ll", "test_ll", "gamma")  # of the end of a trace
SMALL = 0.05  # of the largest weight of a machine: what is smaller counts as nothing
COLUMNS = {
    "valid_error": "validation error",
    "test_error": "test error",
    "small": "weights near zero",
    "hoyer": "Hoyer's sparsity",
}


def counted(found: Results) -> Iterator[tuple]:
    """The candidates that count, each with a seed."""
    chosen = [(found.candidates[each.number], each.seeds) for each in best_candidates(found)]
    every = chosen if found.section.confirm else [(each, each.seeds) for each in found.candidates]
    pairs = ((candidate, seed) for candidate, seeds in every for seed in seeds)
    return iter(sorted(pairs, key=lambda pair: pair[1]))


def machine_of(config, trials: Path):
    """The machine of a trial, trained if it is not there."""
    from natgrad.training import run as training

    folder = trials / plans.name_of(config)
    if not folder.exists():
        training.run_config(config, out=folder)
    return training.load(folder)


def labeled(config):
    """The data of a config; where they have no labels, the gray ones of the same name, which have."""
    from natgrad.data import load_settings

    found = load_settings(config.data)
    if found.labels is not None:
        return found
    return load_settings(config.data.model_copy(update={"binarize": "resample"}))


def rows_of(dataset) -> dict[str, np.ndarray]:
    """The binary rows of every split."""
    from natgrad.data.dataset import rounded

    parts = {split: getattr(dataset, split) for split in ("train", "valid", "test")}
    return {
        name: rows if dataset.levels == 1 else rounded(rows, dataset.levels) for name, rows in parts.items()
    }


def errors(features: dict[str, np.ndarray], labels: dict[str, np.ndarray]) -> dict[str, float]:
    """The errors of the regression whose strength is best on validation rows."""
    from sklearn.linear_model import LogisticRegression

    features = {name: values.astype(np.float64) for name, values in features.items()}
    few = features["train"].shape[1] <= MOST_FEATURES
    solver = "newton-cholesky" if few else "lbfgs"  # the first is many times quicker for ten features

    def fitted(strength: float) -> dict[str, float]:
        model = LogisticRegression(C=strength, solver=solver, max_iter=300)
        model.fit(features["train"], labels["train"])
        wrong = {name: 1 - model.score(features[name], labels[name]) for name in ("valid", "test")}
        return {"strength": strength} | {f"{name}_error": round(value, 6) for name, value in wrong.items()}

    return min(map(fitted, STRENGTHS), key=lambda found: found["valid_error"])


def sparsity(weight: np.ndarray) -> dict[str, float]:
    """The share of weights near zero; Hoyer's sparsity, from 0 (all alike) to 1 (one weight only)."""
    size, length = np.abs(weight), np.sqrt((weight**2).sum())
    root = np.sqrt(weight.size)
    hoyer = (root - size.sum() / length) / (root - 1)
    return {"small": round(float((size < SMALL * size.max()).mean()), 4), "hoyer": round(float(hoyer), 4)}


def collect(file: Path, trials: Path) -> None:
    """Write the lines; what is there already is not made again."""
    place, found = lines_of(file), table.results(file)
    known = {line_key(line) for line in read(place)}
    data, done = None, {}
    with place.open("a") as stream:
        for candidate, seed in counted(found):
            line = {"variant": candidate.variant, "settings": varied(found, candidate), "seed": seed}
            if line_key(line) in known:
                continue
            config = plans.resolved(candidate.setting, seed)
            run = machine_of(config, trials)
            data = labeled(config) if data is None else data
            weight = np.asarray(run.model.parameters.weight)
            if (same := weight.tobytes()) not in done:  # settings that make no difference
                features = {name: run.model.transform(rows) for name, rows in rows_of(data).items()}
                done[same] = errors(features, data.labels) | sparsity(weight)
            line |= done[same]
            line |= {name: run.trace[-1][name] for name in KEPT if name in run.trace[-1]}
            stream.write(json.dumps(line) + "\n")
            stream.flush()
        if not any(line["variant"] == "pixels" for line in read(place)):
            data = labeled(plans.resolved(found.candidates[0].setting, 0)) if data is None else data
            line = {"variant": "pixels", "settings": {}, "seed": 0}
            stream.write(json.dumps(line | errors(rows_of(data), data.labels)) + "\n")


def varied(found: Results, candidate) -> dict:
    """The settings of a candidate in which trials differ."""
    names = [name for name in table.differing(found) if name != "method"]
    return {name: candidate.setting[name] for name in names if name in candidate.setting}


def lines_of(file: Path) -> Path:
    return file.with_name(f"{file.stem}_classes.jsonl")


def read(place: Path) -> list[dict]:
    return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []


def line_key(line: dict) -> str:
    return json.dumps([line["variant"], line["settings"], line["seed"]], sort_keys=True)


def page(lines: list[dict]) -> str:
    """Means over seeds of every variant, the least error on validation rows first."""
    heads = ["features", "seeds", *COLUMNS.values()]
    rows = []
    for name in dict.fromkeys(line["variant"] for line in lines):
        own = [line for line in lines if line["variant"] == name]
        cells = [spread([line[column] for line in own if column in line]) for column in COLUMNS]
        order = np.mean([line["valid_error"] for line in own])
        rows.append((order, f"| {' | '.join([name, str(len(own)), *cells])} |"))
    rows.sort(key=lambda row: row[0])
    return (
        "\n".join([f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *(row for _, row in rows)]) + "\n"
    )


def spread(values: list[float]) -> str:
    """A mean in percent, with the standard deviation over seeds."""
    if not values:
        return ""
    deviation = f" (sd {100 * np.std(values, ddof=1):.1f})" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.1f} %{deviation}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="a sweep's file, with its record beside it")
    parser.add_argument("trials", type=Path, nargs="?", help="the folder of the sweep's trials")
    chosen = parser.parse_args()
    if chosen.trials is not None:
        collect(chosen.file, chosen.trials)
    if table.results(chosen.file).section.confirm:
        chosen.file.with_name(f"{chosen.file.stem}_classes.md").write_text(page(read(lines_of(chosen.file))))
        print(page(read(lines_of(chosen.file))))


if __name__ == "__main__":
    main()
