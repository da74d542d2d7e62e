"""Judge the networks of a sweep's trials with as many samples as published figures have.

    python -m experiments.vae.judge mnist_long TRIALS

adds to `judged_<name>.jsonl` a line for every recorded trial of `<name>.toml` that has none yet: the
likelihood of all test rows by importance sampling with 5,000 samples, and the bounds. The record has 100
samples and some rows. What is judged is the state that was best on validation rows. Then it writes
`judged_<name>.md`, which also says after how many seconds one variant passed the best validation bound of
another. Without TRIALS it only writes this.
"""

import argparse
import json
import statistics
import tomllib
from collections.abc import Sequence
from pathlib import Path

from experiments.table import deciding_row, is_trial, results

HERE = Path(__file__).parent
SAMPLES = 5000
TOLD = ("test_ll", "test_ll_se", "mc_se", "test_bound", "bound_samples", "test_elbo", "active_units")
TOLD += ("effective_samples", "heavy_tailed_rows", "samples", "rows")
HEADS = ("variant", "seed", "epochs", "CPU seconds", "validation ELBO", "test LL", "se", "test bound")
HEADS += ("test ELBO",)
MEAN_HEADS = ("variant", "seeds", "CPU seconds", "validation ELBO", "test LL")
PASSED_HEADS = ("seed", "best validation ELBO of", "in CPU s", "passed by", "after CPU s", "share")


def judged(name: str) -> list[dict]:
    """The lines so far."""
    path = HERE / f"judged_{name}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def judge(name: str, trials: Path) -> None:
    """Judge what is recorded and not judged yet."""
    from natgrad.models.vae.measure import evaluated_run

    known = {(line["variant"], line["seed"]) for line in judged(name)}
    found = results(HERE / f"{name}.toml")
    for line in found.record.known.values():
        own = [path.parent for path in sorted(trials.glob("*/config.toml")) if _made(line, path)]
        if (line["variant"], line["seed"]) in known or not own:
            continue
        told = evaluated_run(own[0], samples=SAMPLES)
        best = deciding_row(line["rows"], found.section)
        row = {"variant": line["variant"], "seed": line["seed"], "epoch": best["epoch"]}
        row |= {"cpu_seconds": line["rows"][-1]["cpu_seconds"], "valid_elbo": best["valid_elbo"]}
        with (HERE / f"judged_{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row | {key: told[key] for key in TOLD}) + "\n")


def _made(line: dict, config: Path) -> bool:
    """Whether a folder has a whole trial, and it is this one."""
    return "rows" in line and is_trial(line, tomllib.loads(config.read_text("utf-8")))


def page(name: str) -> str:
    """A line for every trial, the best validation bound first; means over seeds; who passed whom when."""
    found = sorted(judged(name), key=lambda each: -each["valid_elbo"])
    rows = []
    for line in found:
        ends = [str(line["seed"]), str(line["epoch"]), f"{line['cpu_seconds']:.0f}"]
        keys = ("valid_elbo", "test_ll", "test_ll_se", "test_bound", "test_elbo")
        rows.append([line["variant"], *ends, *(f"{line[key]:.2f}" for key in keys)])
    known = [line for line in results(HERE / f"{name}.toml").record.known.values() if "rows" in line]
    pages = (table(HEADS, rows), table(MEAN_HEADS, means(found)), table(PASSED_HEADS, passed(known)))
    return "\n\n".join(pages) + "\n"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    return "\n".join([f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def means(lines: list[dict]) -> list[list[str]]:
    """Each variant with its means over seeds, and the spread of the last of them."""
    rows = []
    for name in dict.fromkeys(line["variant"] for line in lines):
        own = [line for line in lines if line["variant"] == name]
        seconds, bound, ll = (
            statistics.mean(line[key] for line in own) for key in ("cpu_seconds", "valid_elbo", "test_ll")
        )
        spread = f" (sd {statistics.stdev(line['test_ll'] for line in own):.2f})" if len(own) > 1 else ""
        rows.append([name, str(len(own)), f"{seconds:.0f}", f"{bound:.2f}", f"{ll:.2f}{spread}"])
    return rows


def passed(lines: list[dict]) -> list[list[str]]:
    """When each variant passed the best validation bound that another one reached, seed by seed."""
    rows = []
    for slower in sorted(lines, key=lambda line: line["seed"]):
        best = max(slower["rows"], key=lambda row: row["valid_elbo"])
        for faster in lines:
            first = _first_above(faster["rows"], best["valid_elbo"])
            if faster is slower or faster["seed"] != slower["seed"] or first is None:
                continue
            spent, own = first["cpu_seconds"], best["cpu_seconds"]
            said = [str(slower["seed"]), slower["variant"], f"{own:.0f}", faster["variant"]]
            rows.append([*said, f"{spent:.0f}", f"{spent / own:.2f}"])
    return rows


def _first_above(rows: list[dict], bound: float) -> dict | None:
    return next((row for row in rows if row["valid_elbo"] > bound), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="whose trials: the name of a sweep's file here")
    parser.add_argument("trials", type=Path, nargs="?", help="the folder of the sweep's trials")
    given = parser.parse_args()
    if given.trials:
        judge(given.name, given.trials)
    (HERE / f"judged_{given.name}.md").write_text(page(given.name))


if __name__ == "__main__":
    main()
