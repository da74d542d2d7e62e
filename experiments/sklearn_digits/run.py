"""Features for logistic regression on scikit-learn's digits: Helmholtz machine, BernoulliRBM, raw pixels.

    python -m experiments.sklearn_digits.run

For every seed a quarter of the 1,797 digits is set aside for the test. Both models have as many hidden units,
epochs and rows in a batch, and the same grid of learning rates; rate and strength of the regression are
chosen by 3-fold cross-validation on the other three quarters. Results go to `results.jsonl` (what is found
there is not run again), the table to `table.md`.
"""

import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SEEDS = (0, 1, 2)
EPOCHS, STRENGTHS = 30, (1.0, 10.0, 1e3, 1e5)
UNITS, RATES = 200, [0.002, 0.005, 0.02, 0.06]


def kinds() -> dict:
    """Each kind of features: its estimator and its grid."""
    from sklearn.neural_network import BernoulliRBM

    from natgrad.models.helmholtz.estimator import HelmholtzMachine

    machine = HelmholtzMachine(layers=(UNITS,), epochs=EPOCHS, batch_size=32, posterior_samples=50)
    rbm = BernoulliRBM(n_components=UNITS, n_iter=EPOCHS, batch_size=32)
    return {
        "raw pixels": ("passthrough", {}),
        "BernoulliRBM": (rbm, {"learning_rate": RATES}),
        "HelmholtzMachine": (machine, {"learning_rate": RATES}),
    }


def trial(name: str, seed: int, cache: str) -> dict:
    """The test accuracy of one kind of features, at the setting that cross-validation chooses."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, train_test_split
    from sklearn.pipeline import Pipeline

    pixels, classes = load_digits(return_X_y=True)
    parts = train_test_split(pixels / 16, classes, test_size=0.25, stratify=classes, random_state=seed)
    features, grid = kinds()[name]
    if features != "passthrough":
        features.set_params(random_state=seed)
    pipeline = Pipeline([("features", features), ("classes", LogisticRegression(max_iter=500))], memory=cache)
    grid = {f"features__{key}": values for key, values in grid.items()} | {"classes__C": STRENGTHS}
    began = time.perf_counter()
    search = GridSearchCV(pipeline, grid, cv=3).fit(parts[0], parts[2])
    return {
        "features": name,
        "seed": seed,
        "chosen": {key.split("__")[1]: value for key, value in search.best_params_.items()},
        "cross_validation": float(search.best_score_),
        "test": float(search.score(parts[1], parts[3])),
        "seconds": round(time.perf_counter() - began, 1),
    }


def table(rows: list[dict]) -> list[str]:
    """Means over seeds, and the differences to the Helmholtz machine seed by seed."""
    lines = ["| features | seeds | cross-validation | test accuracy | minus HelmholtzMachine | chosen |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    accuracy = {(row["features"], row["seed"]): row["test"] for row in rows}
    whole = [seed for seed in SEEDS if all((name, seed) in accuracy for name in kinds())]
    for name in kinds():
        mine = [row for row in rows if row["features"] == name and row["seed"] in whole]
        test = np.array([row["test"] for row in mine])
        apart = np.array([row["test"] - accuracy["HelmholtzMachine", row["seed"]] for row in mine])
        chosen = "; ".join(sorted({_text(row["chosen"]) for row in mine}))
        within = np.mean([row["cross_validation"] for row in mine])
        difference = _spread(apart) if apart.any() else "-"
        cells = [name, str(len(mine)), f"{within:.4f}", _spread(test), difference, chosen]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.4f} (sd {values.std(ddof=1):.4f})" if len(values) > 1 else f"{values.mean():.4f}"


def _text(chosen: dict) -> str:
    return ", ".join(f"{key} {value}" for key, value in chosen.items())


def main() -> None:
    """Run what is missing, then write the table."""
    results = HERE / "results.jsonl"
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{cache}/xla")  # folds compile alike
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
        for seed in SEEDS:
            for name in kinds():
                if not any((row["features"], row["seed"]) == (name, seed) for row in rows):
                    rows.append(trial(name, seed, cache))
                    print(json.dumps(rows[-1]), flush=True)
                    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
            (HERE / "table.md").write_text("\n".join(table(rows)) + "\n")


if __name__ == "__main__":
    main()
