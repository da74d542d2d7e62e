"""Judge the machines of a sweep's trials from both ends.

    python -m experiments.rbm_mnist.judge race TRIALS [TRIALS ...]

adds to `judged_<name>.jsonl` a line for every recorded trial of `<name>.toml` that has none yet: likelihoods
of all validation and test rows by annealing, forward and reverse chains bridged. The record has forward
estimates on some rows. Where a trial has kept copies of its machine on the way, the later ones are judged
too, each in a line with its step. Machines that were trained on pixels drawn again at every use are judged
by the fixed test rows of binarized-mnist, which have the same digits as their own. Then it writes
`judged_<name>.md`, and of a race `judged_race.png`: means over seeds against epochs and against CPU seconds.
Without TRIALS it only writes these.
"""

import argparse
import json
import statistics
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from experiments.table import is_trial, results
from natgrad.sweep.table import brief

HERE = Path(__file__).parent
TEMPERATURES = {
    "tune": 2000,
    "rates": 2000,
    "decay": 2000,
    "first_race": 10_000,
    "race": 10_000,
    "resampled": 10_000,
}
FIXED_ROWS = "binarized-mnist"  # whose test rows judge all machines
ON_THE_WAY, FIRST_COPY = 2000, 2**13  # temperatures for copies, and the first step whose copy is judged
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
WAY_HEADS = ("variant", "steps", "epochs", "CPU seconds", "seeds", "validation LL", "test LL")


def judged(name: str) -> list[dict]:
    """The lines so far."""
    path = HERE / f"judged_{name}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def identity(line: dict) -> str:
    """What a trial is known by."""
    return json.dumps([line["settings"], line["seed"]], sort_keys=True)


def judge(name: str, trials: list[Path]) -> None:
    """Judge what is recorded and not judged yet."""
    known = {(identity(line), line.get("step")) for line in judged(name)}
    folders = [path.parent for place in trials for path in sorted(place.glob("*/config.toml"))]
    for line in results(HERE / f"{name}.toml").record.known.values():
        own = [
            path
            for path in folders
            if is_trial(line, tomllib.loads((path / "config.toml").read_text("utf-8")))
        ]
        if "rows" not in line or not own:
            continue
        for step in [*_copies(own[0]), None]:
            if (identity(line), step) not in known:
                _add(name, line, step, _figures(own[0], step, TEMPERATURES[name]))


def _copies(trial: Path) -> list[int]:
    from natgrad.records.checkpoints import copied_steps

    return [step for step in copied_steps(trial) if step >= FIRST_COPY]


def _figures(trial: Path, step: int | None, temperatures: int) -> dict:
    """The likelihoods of a trial's last machine, or of the copy of a step."""
    import natgrad
    from natgrad.models.rbm.measure import evaluate_machine

    run = natgrad.load(trial, step=step)
    number = temperatures if step is None else ON_THE_WAY
    if step is None:
        found = evaluate_machine(trial, None, temperatures=number)
    else:
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "machine.npz"
            run.model.save(file)
            found = evaluate_machine(file, run.config.data.name, temperatures=number)
    if run.config.data.name != FIXED_ROWS:
        found |= {"test_ll": _fixed_test(run.model.parameters, found["log_z"])}
    return found | {"temperatures": number}


def _fixed_test(machine: Any, log_z: float) -> float:
    """The likelihood of the fixed test rows."""
    import jax.numpy as jnp

    from natgrad.data import load
    from natgrad.data.batches import binary_rows
    from natgrad.models.rbm.likelihood import log_likelihoods
    from natgrad.models.rbm.monitor import coded_rows

    rows = jnp.asarray(binary_rows(load(FIXED_ROWS), "test", seed=0))
    return float(np.mean(log_likelihoods(machine, coded_rows(machine, rows), log_z)))


def _add(name: str, line: dict, step: int | None, found: dict) -> None:
    last = line["rows"][-1]
    row = {key: line[key] for key in ("variant", "settings", "seed")}
    row |= {key: last[key] for key in ("epoch", "seconds", "cpu_seconds") if key in last}
    if step is not None:
        share = step / last["step"]
        row |= {key: share * row[key] for key in ("epoch", "seconds", "cpu_seconds")} | {"step": step}
    with (HERE / f"judged_{name}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row | {key: found[key] for key in (*TOLD, "temperatures")}) + "\n")


def page(name: str) -> str:
    """A line for every trial, best validation first; `apart` is reverse less forward. Then the way there."""
    every = judged(name)
    lines = [line for line in every if "step" not in line]
    same = {
        key for key in lines[0]["settings"] if len({json.dumps(x["settings"].get(key)) for x in lines}) == 1
    }
    heads = [head.replace("seconds", "CPU seconds") if _has_cpu(lines) else head for head in HEADS]
    table = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for line in sorted(lines, key=lambda each: -each["valid_ll"]):
        own = {brief(key): value for key, value in sorted(line["settings"].items()) if key not in same}
        own = {key: value for key, value in own.items() if key not in ("epochs", "every", "method")}
        numbers = [f"{line[key]:.2f}" for key in ("valid_ll", "test_ll", "log_z_se")]
        apart = f"{line['log_z_reverse'] - line['log_z_forward']:.2f}"
        said = [line["variant"], ", ".join(f"{key} {value}" for key, value in own.items()), str(line["seed"])]
        last = [str(line["epoch"]), f"{_spent(line):.0f}", *numbers, apart]
        table.append(f"| {' | '.join([*said, *last])} |")
    return "\n".join([*table, *_means(lines), *_way(every)]) + "\n"


def _has_cpu(lines: list[dict]) -> bool:
    return all("cpu_seconds" in line for line in lines)


def _spent(line: dict) -> float:
    return line.get("cpu_seconds", line["seconds"])


def _means(lines: list[dict]) -> list[str]:
    """The end of every variant over its seeds, where there are several."""
    found = {}
    for line in lines:
        found.setdefault(line["variant"], []).append(line)
    if not any(len({line["seed"] for line in own}) > 1 for own in found.values()):
        return []
    heads = ("variant", "seeds", "epochs", "CPU seconds", "validation LL", "test LL")
    table = ["", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, own in sorted(found.items(), key=lambda pair: -_mean(pair[1], "valid_ll")):
        ends = [str(len(own)), f"{_mean(own, 'epoch'):.0f}", f"{statistics.fmean(map(_spent, own)):.0f}"]
        figures = [_with_spread([line[key] for line in own]) for key in ("valid_ll", "test_ll")]
        table.append(f"| {' | '.join([name, *ends, *figures])} |")
    return table


def _way(every: list[dict]) -> list[str]:
    """The means over seeds of what was judged on the way."""
    found = way(every)
    if not found:
        return []
    table = ["", f"| {' | '.join(WAY_HEADS)} |", "|" + "---|" * len(WAY_HEADS)]
    for variant, points in found.items():
        for step, own in points:
            ends = [f"{_mean(own, key):.0f}" for key in ("epoch", "cpu_seconds")] + [str(len(own))]
            figures = [_with_spread([line[key] for line in own]) for key in ("valid_ll", "test_ll")]
            table.append(f"| {' | '.join([variant, f'{step:,}' if step else 'all', *ends, *figures])} |")
    return table


def way(every: list[dict]) -> dict[str, list[tuple[int | None, list[dict]]]]:
    """By variant, in the order of steps: the lines of a step, the last machines last."""
    names = dict.fromkeys(line["variant"] for line in every if "step" in line)
    found = {}
    for name in names:
        own = [line for line in every if line["variant"] == name]
        steps = sorted({line["step"] for line in own if "step" in line})
        found[name] = [(step, [line for line in own if line.get("step") == step]) for step in [*steps, None]]
    return {name: [(step, own) for step, own in points if own] for name, points in found.items()}


def _mean(lines: list[dict], key: str) -> float:
    return statistics.fmean(line[key] for line in lines)


def _with_spread(values: list[float]) -> str:
    spread = f" (sd {statistics.stdev(values):.2f})" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"


def draw(name: str) -> None:
    """The judged test likelihoods of a race."""
    from matplotlib.figure import Figure

    top = np.ceil(2 * max(line["test_ll"] for line in judged(name))) / 2 + 0.5
    figure = Figure(figsize=(11, 4.6), dpi=120, layout="constrained")
    for axes, key, said in zip(
        figure.subplots(1, 2, sharey=True), ("epoch", "cpu_seconds"), ("epochs", "CPU seconds"), strict=True
    ):
        for variant, points in way(judged(name)).items():
            at = [_mean(own, key) for _, own in points]
            means = np.array([_mean(own, "test_ll") for _, own in points])
            spread = [np.std([line["test_ll"] for line in own]) for _, own in points]
            axes.errorbar(at, means, spread, marker=".", lw=1.2, capsize=2, label=variant)
        axes.set_xlabel(said)
        axes.set_ylim(-93, top)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="lower right")
    figure.axes[0].set_ylabel("test log-likelihood (nats), both directions")
    figure.savefig(HERE / f"judged_{name}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=list(TEMPERATURES), help="whose trials")
    parser.add_argument("trials", type=Path, nargs="*", help="folders of the sweep's trials")
    given = parser.parse_args()
    judge(given.name, given.trials)
    (HERE / f"judged_{given.name}.md").write_text(page(given.name))
    if way(judged(given.name)):
        draw(given.name)


if __name__ == "__main__":
    main()
