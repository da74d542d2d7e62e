"""Judge the models of a sweep's trials with as many samples as published figures have.

    python -m experiments.judge experiments/vae/mnist_long.toml TRIALS

adds to `judged_<name>.jsonl`, beside the sweep's file, a line for every recorded trial that has none yet: the
likelihood of all test rows by importance sampling with thousands of samples. The record has 100 samples and
some rows. What is judged is the state that was best on validation rows. Then it writes `judged_<name>.md`,
which also says after how many seconds one variant passed what another one reached on validation rows.
Without TRIALS it only writes this. Autoencoders and Helmholtz machines.
"""

import argparse
import json
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.table import deciding_row, is_trial, results, title

SHORT = {
    "test_ll_se": "se",
    "effective_samples": "effective samples",
    "heavy_tailed_rows": "rows of heavy tails",
    "samples": "samples",
}


class Judging(NamedTuple):
    """How models of a kind are judged.

    module, function: what evaluates a trial's folder. criterion: the column of the trace that validation
    rows decide by. told: what a line has of the evaluation. shown: the columns of the page.
    """

    module: str
    function: str
    criterion: str
    told: Sequence[str]
    shown: Sequence[str]


COUNTS = ("test_ll", "test_ll_se", "mc_se", "effective_samples", "heavy_tailed_rows", "samples", "rows")
KINDS: Mapping[str, Judging] = {
    "vae": Judging(
        "natgrad.models.vae.measure",
        "evaluated_run",
        "valid_elbo",
        (*COUNTS, "test_bound", "bound_samples", "test_elbo", "active_units"),
        (
            "test_ll",
            "test_ll_se",
            "effective_samples",
            "heavy_tailed_rows",
            "samples",
            "test_bound",
            "test_elbo",
        ),
    ),
    "helmholtz": Judging(
        "natgrad.models.helmholtz.measure",
        "evaluate_run",
        "valid_ll",
        COUNTS,
        ("test_ll", "test_ll_se", "effective_samples", "heavy_tailed_rows", "samples"),
    ),
}


def judging(file: Path) -> Judging:
    """How the models of a sweep's file are judged."""
    return KINDS[tomllib.loads(file.read_text("utf-8")).get("model", "helmholtz")]


def place(file: Path, ending: str) -> Path:
    return file.with_name(f"judged_{file.stem}.{ending}")


def judged(file: Path) -> list[dict]:
    """The lines so far."""
    path = place(file, "jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def judge(file: Path, trials: Path, samples: int) -> None:
    """Judge what is recorded and not judged yet."""
    known = {(line["variant"], line["seed"]) for line in judged(file) if line["samples"] == samples}
    found, how = results(file), judging(file)
    for line in found.record.known.values():
        own = [path.parent for path in sorted(trials.glob("*/config.toml")) if _made(line, path)]
        if (line["variant"], line["seed"]) in known or not own:
            continue
        told = _evaluated(how, own[0], samples)
        best = deciding_row(line["rows"], found.section)
        row = {"variant": line["variant"], "seed": line["seed"], "epoch": best["epoch"]}
        row |= {"cpu_seconds": line["rows"][-1]["cpu_seconds"], how.criterion: best[how.criterion]}
        with place(file, "jsonl").open("a", encoding="utf-8") as record:
            record.write(json.dumps(row | {key: told[key] for key in how.told}) + "\n")


def _evaluated(how: Judging, trial: Path, samples: int) -> dict:
    import importlib

    return getattr(importlib.import_module(how.module), how.function)(trial, samples=samples)


def _made(line: dict, config: Path) -> bool:
    """Whether a folder has a whole trial, and it is this one."""
    return "rows" in line and is_trial(line, tomllib.loads(config.read_text("utf-8")))


def page(file: Path) -> str:
    """A line for every trial, best validation rows first; means over seeds; who passed whom when."""
    how = judging(file)
    found = sorted(judged(file), key=lambda each: -each[how.criterion])
    said = title(how.criterion)
    columns = [SHORT.get(key) or title(key) for key in how.shown]
    rows = []
    for line in found:
        ends = [str(line["seed"]), str(line["epoch"]), f"{line['cpu_seconds']:.0f}"]
        rows.append([line["variant"], *ends, *(_text(line[key]) for key in (how.criterion, *how.shown))])
    known = [line for line in results(file).record.known.values() if "rows" in line]
    pages = (
        table(("variant", "seed", "epochs", "CPU seconds", said, *columns), rows),
        table(("variant", "samples", "seeds", "CPU seconds", said, "test LL"), means(found, how.criterion)),
        table(
            ("seed", f"best {said} of", "in CPU s", "passed by", "after CPU s", "share"),
            passed(known, how.criterion),
        ),
    )
    return "\n\n".join(pages) + "\n"


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    return "\n".join([f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def means(lines: list[dict], criterion: str) -> list[list[str]]:
    """Each variant's means over seeds, for every number of samples, and the spread of the last of them."""
    rows = []
    for name, samples in dict.fromkeys((line["variant"], line["samples"]) for line in lines):
        own = [line for line in lines if (line["variant"], line["samples"]) == (name, samples)]
        seconds, bound, ll = (
            statistics.mean(line[key] for line in own) for key in ("cpu_seconds", criterion, "test_ll")
        )
        spread = f" (sd {statistics.stdev(line['test_ll'] for line in own):.2f})" if len(own) > 1 else ""
        rows.append(
            [name, str(samples), str(len(own)), f"{seconds:.0f}", f"{bound:.2f}", f"{ll:.2f}{spread}"]
        )
    return rows


def passed(lines: list[dict], criterion: str) -> list[list[str]]:
    """When each variant passed the best that another one reached on validation rows, seed by seed."""
    rows = []
    for slower in sorted(lines, key=lambda line: line["seed"]):
        best = max(slower["rows"], key=lambda row: row[criterion])
        for faster in lines:
            first = next((row for row in faster["rows"] if row[criterion] > best[criterion]), None)
            if faster is slower or faster["seed"] != slower["seed"] or first is None:
                continue
            spent, own = first["cpu_seconds"], best["cpu_seconds"]
            said = [str(slower["seed"]), slower["variant"], f"{own:.0f}", faster["variant"]]
            rows.append([*said, f"{spent:.0f}", f"{spent / own:.2f}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="a sweep's file, with its record beside it")
    parser.add_argument("trials", type=Path, nargs="?", help="the folder of the sweep's trials")
    parser.add_argument("--samples", type=int, default=5000, help="importance samples for a row")
    given = parser.parse_args()
    if given.trials:
        judge(given.file, given.trials, given.samples)
    place(given.file, "md").write_text(page(given.file))


if __name__ == "__main__":
    main()
