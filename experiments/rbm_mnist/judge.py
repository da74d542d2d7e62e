"""Judge the last states of a sweep's trials from both ends.

    python -m experiments.rbm_mnist.judge race TRIALS

adds to `judged_<name>.jsonl` a line for every recorded trial of `<name>.toml` that has none yet: likelihoods
of all validation and test rows by annealing, forward and reverse chains bridged. The record has forward
estimates on some rows. Then it writes `judged_<name>.md`; without TRIALS only that.
"""

import argparse
import json
import tomllib
from pathlib import Path

from experiments.rbm_seed.course import is_trial
from experiments.table import results
from natgrad.sweep.table import brief

HERE = Path(__file__).parent
TEMPERATURES = {"tune": 2000, "race": 10_000}
TOLD = ("valid_ll", "test_ll", "log_z", "log_z_se", "log_z_forward", "log_z_forward_se", "log_z_reverse")
HEADS = (
    "variant",
    "setting",
    "seed",
    "epochs",
    "seconds",
    "validation LL",
    "test LL",
    "se of log Z",
    "apart",
)


def judged(name: str) -> list[dict]:
    """The lines so far."""
    path = HERE / f"judged_{name}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def identity(line: dict) -> str:
    """What a trial is known by."""
    return json.dumps([line["settings"], line["seed"]], sort_keys=True)


def judge(name: str, trials: Path) -> None:
    """Judge what is recorded and not judged yet."""
    from natgrad.models.rbm.measure import evaluate_machine

    known = {identity(line) for line in judged(name)}
    for line in results(HERE / f"{name}.toml").record.known.values():
        folders = [path for path in trials.iterdir() if (path / "config.toml").exists()]
        own = [
            path
            for path in folders
            if is_trial(line, tomllib.loads((path / "config.toml").read_text("utf-8")))
        ]
        if "rows" not in line or identity(line) in known or not own:
            continue
        found = evaluate_machine(own[0], None, temperatures=TEMPERATURES[name])
        last = line["rows"][-1]
        row = {key: line[key] for key in ("variant", "settings", "seed")}
        row |= {key: last[key] for key in ("epoch", "seconds")} | {key: found[key] for key in TOLD}
        with (HERE / f"judged_{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row | {"temperatures": TEMPERATURES[name]}) + "\n")


def page(name: str) -> str:
    """A line for every trial, best validation first; `apart` is reverse less forward."""
    lines = judged(name)
    same = {
        key for key in lines[0]["settings"] if len({json.dumps(x["settings"].get(key)) for x in lines}) == 1
    }
    table = [f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS)]
    for line in sorted(lines, key=lambda each: -each["valid_ll"]):
        own = {brief(key): value for key, value in sorted(line["settings"].items()) if key not in same}
        own = {key: value for key, value in own.items() if key not in ("epochs", "every", "method")}
        numbers = [f"{line[key]:.2f}" for key in ("valid_ll", "test_ll", "log_z_se")]
        apart = f"{line['log_z_reverse'] - line['log_z_forward']:.2f}"
        said = [line["variant"], ", ".join(f"{key} {value}" for key, value in own.items()), str(line["seed"])]
        last = [str(line["epoch"]), f"{line['seconds']:.0f}", *numbers, apart]
        table.append(f"| {' | '.join([*said, *last])} |")
    return "\n".join(table) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=list(TEMPERATURES), help="whose trials")
    parser.add_argument("trials", type=Path, nargs="?", help="the folder of the sweep's trials")
    given = parser.parse_args()
    if given.trials is not None:
        judge(given.name, given.trials)
    (HERE / f"judged_{given.name}.md").write_text(page(given.name))


if __name__ == "__main__":
    main()
