"""Run the trials of an experiment: every variant, every value of its lists, every seed.

    python -m experiments.grid experiments/nrws_choices/config.toml [--workers 2]

A trial is one `natgrad.train` in a process of its own, on a core of its own. Its curve is appended
to a `.jsonl` file beside the config when it is done; trials found there are not run again. When the
grid is done, every variant's best setting on validation data (by the config's `judge`, which is `valid_ll`
unless it says otherwise) runs anew with the config's `winner_seeds`, which had no part in the choice.
Settings named in `seeded`, such as `data.split_seed`, take the trial's seed too.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

KEPT = ("epoch", "step", "seconds", "train_loss", "valid_loss", "valid_ll", "test_ll", "test_ll_se", "kl")
KEPT += ("valid_error", "test_error", "valid_squared_error", "test_squared_error", "divergences", "damping")
SIZES = ("layers", "filters", "image_shape")  # settings whose values are lists


def trials(config: dict) -> list[dict]:
    """Every trial of a config, the first seed of all variants first."""
    found = []
    for variant in config["variant"]:
        settings = config["base"] | variant
        name, seeds = settings.pop("name"), settings.pop("seeds", config.get("seeds", [0]))
        lists = {
            key: value for key, value in settings.items() if isinstance(value, list) and key not in SIZES
        }
        for values in itertools.product(*lists.values()):
            chosen = settings | dict(zip(lists, values, strict=True))
            also = {"seeded": config["seeded"]} if "seeded" in config else {}
            found += [{"variant": name, "settings": chosen, "seed": seed} | also for seed in seeds]
    return sorted(found, key=lambda trial: trial["seed"])


def winners(config: dict, results: Path) -> list[dict]:
    """The best setting of every variant, with the seeds that confirm it."""
    asked = {key(trial) for trial in trials(config)}
    best: dict[str, dict] = {}
    judge = config.get("judge", "valid_ll")
    for line in results.read_text().splitlines():
        trial = json.loads(line)
        before = best.get(trial["variant"])
        if key(trial) in asked and (before is None or _reached(trial, judge) > _reached(before, judge)):
            best[trial["variant"]] = trial
    return [
        trial_of(trial) | {"seed": seed} for seed in config.get("winner_seeds", []) for trial in best.values()
    ]


def trial_of(result: dict) -> dict:
    """A result without its curve."""
    return {name: result[name] for name in ("variant", "settings", "seed", "seeded") if name in result}


def _reached(trial: dict, judge: str) -> float:
    """How good a trial is; of anything but a likelihood, less is better."""
    reached = trial["rows"][-1][judge]
    if reached is None or not math.isfinite(reached):
        return -math.inf
    return reached if judge.endswith("_ll") else -reached


def key(trial: dict) -> str:
    return json.dumps([trial["variant"], trial["settings"], trial["seed"]], sort_keys=True)


def run(trial: dict, watch: "Clock | None" = None) -> dict:
    """Train one trial and return its curve."""
    import natgrad

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        seeds = dict.fromkeys(["seed", *trial.get("seeded", [])], trial["seed"])
        done = natgrad.train(out=Path(folder) / "run", watch=watch, **trial["settings"] | seeds)
    rows = [{name: row[name] for name in KEPT if name in row} for row in done.trace]
    return trial | {"rows": rows, "wall_seconds": round(time.perf_counter() - began, 1)}


def run_all(path: Path, workers: int) -> None:
    """The grid, then its winners."""
    config, results = tomllib.loads(path.read_text()), path.with_suffix(".jsonl")
    run_missing(trials(config), results, workers)
    run_missing(winners(config, results), results, workers)


def run_missing(wanted: list[dict], results: Path, workers: int) -> None:
    """Keep every worker's core busy until all trials are done."""
    done = {key(json.loads(line)) for line in results.read_text().splitlines()} if results.exists() else set()
    waiting = [trial for trial in wanted if key(trial) not in done]
    print(f"{len(waiting)} trials to run, {len(done)} done", flush=True)
    running: dict[int, tuple[subprocess.Popen, dict]] = {}
    cores = sorted(os.sched_getaffinity(0))[-workers:]
    while waiting or running:
        for core in cores:
            if core not in running and waiting:
                trial = waiting.pop(0)
                command = [
                    "taskset",
                    "-c",
                    str(core),
                    sys.executable,
                    "-m",
                    "experiments.grid",
                    "--trial",
                    json.dumps(trial),
                ]
                running[core] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True), trial
        for core, (process, trial) in list(running.items()):
            if process.poll() is not None:
                del running[core]
                _collect(process, trial, results)
        time.sleep(0.2)


class Clock:
    """CPU seconds of the steps alone, as a watcher of a training."""

    def __init__(self) -> None:
        self.began = self.ended = self.steps = 0.0

    def advanced(self, steps: int, total: int, loss: float) -> None:
        """A chunk is done."""
        self.ended, self.steps = time.process_time(), steps

    def evaluated(self, row: dict) -> None:
        """The first evaluation comes before the first step."""
        if row["epoch"] == 0:
            self.began = time.process_time()


def smoke(path: Path) -> None:
    """An epoch of every variant's first setting, unrecorded: does it run, and what does a step take?

    Networks that learn from a part of the rows get two batches only.
    """
    config = tomllib.loads(path.read_text())
    first = {trial["variant"]: trial for trial in reversed(trials(config))}
    for name, trial in first.items():
        settings, clock, began = dict(trial["settings"]), Clock(), time.process_time()
        settings |= {"epochs": 1, "evaluation.every": 1, "evaluation.rows": 500}
        if "labelled" in settings:
            settings["labelled"] = 2 * settings["batch_size"]
        last = run(trial | {"settings": settings}, clock)["rows"][-1]
        step, whole = (clock.ended - clock.began) / clock.steps, time.process_time() - began
        print(
            f"{name}: {step:.3f} CPU s a step, {whole:.1f} in all; loss {last['valid_loss']:.4g}", flush=True
        )


def _collect(process: subprocess.Popen, trial: dict, results: Path) -> None:
    output = process.stdout.read() if process.stdout else ""
    if process.returncode:
        print(f"FAILED {key(trial)}", flush=True)
        return
    with results.open("a") as stream:
        stream.write(output.splitlines()[-1] + "\n")
    last = json.loads(output.splitlines()[-1])["rows"][-1]
    print(f"{last.get('valid_ll'):8.3f} {last['seconds']:7.1f} s  {key(trial)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path, nargs="?")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--smoke", action="store_true", help="a few steps of every variant, unrecorded")
    parser.add_argument("--trial", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.trial:
        print(json.dumps(run(json.loads(arguments.trial))))
    elif arguments.smoke:
        smoke(arguments.config)
    else:
        run_all(arguments.config, arguments.workers)


if __name__ == "__main__":
    main()
