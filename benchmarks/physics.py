"""Networks trained on differential equations: relative error after the same CPU seconds for every method.

    taskset -c 0 python -m benchmarks.physics             # every equation; what is recorded is not repeated
    taskset -c 0 python -m benchmarks.physics --equation heat --seeds 5 --json

Every trial is a process of its own, one after the other, on one core, in float64, without kept programs. Its
clock is CPU time from before the first compilation, measurements left out. Trials are added to
benchmarks/results/physics_EQUATION.jsonl as they end, so that a record is completed by the same command.
Seed 0, which is not reported, decides each method's setting in a third of the time, by the error at
validation points; errors of the other seeds at test points are reported. `--page` writes the table into
docs/least_squares.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import run_benchmark
from natgrad.errors import InputError

RESULTS, PAGE = Path("benchmarks/results"), Path("docs/least_squares.md")
BEGIN, END = (
    "<!-- measured: python -m benchmarks.physics --page -->\n",
    "<!-- end of the measured table -->\n",
)
TUNING = 1 / 3  # of a trial's time, for those that choose a setting
Trial = dict[str, Any]


def trial(name: str, fitter: str, setting: float, seed: int, seconds: float) -> Trial:
    """One training, and its errors as time goes by."""
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)  # no trial finds the programs of another
    from benchmarks import equations
    from benchmarks.fitters import FITTERS

    equation = equations.EQUATIONS[name]
    start, batch = equations.fresh(equation, seed), equations.batch_of(equation, seed)
    valid, test = (equations.relative_error(equation, key) for key in (0, 1))
    valid(start), test(start), jax.block_until_ready((start, batch))
    curve: list[dict[str, float]] = []
    began, aside = time.process_time(), 0.0

    def report(p: Any, steps: int) -> bool:
        nonlocal aside
        jax.block_until_ready(p)
        now = time.process_time()
        spent = now - began - aside
        if not curve or spent >= seconds or spent >= curve[-1]["seconds"] + seconds / 20:
            row = {"seconds": spent, "steps": steps, "valid": valid(p), "test": test(p)}
            curve.append({key: float(f"{value:.4g}") for key, value in row.items()})
        aside += time.process_time() - now
        return spent >= seconds

    FITTERS[fitter].fit(equation, start, batch, setting, report)
    return {"curve": curve}


def apart(*arguments: Any) -> Trial:
    """The same in a process of its own; one that fails is recorded as such, one that is ended is not."""
    command = [sys.executable, "-m", "benchmarks.physics", "--trial", json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode < 0:
        raise InputError(f"expected a trial to end by itself, got signal {-done.returncode}; start again")
    if "ModuleNotFoundError" in done.stderr:
        missed = done.stderr.strip().splitlines()[-1]
        raise InputError(
            f"a method is not installed ({missed}); pip install '.[opponents]', then start again"
        )
    known = dict(zip(("equation", "fitter", "setting", "seed", "cpu_seconds"), arguments, strict=True))
    known["cores"] = len(os.sched_getaffinity(0))
    if done.returncode:
        return known | {"curve": [], "failed": done.stderr.strip().splitlines()[-1][:200]}
    return known | json.loads(done.stdout.splitlines()[-1])


def record_of(name: str) -> Path:
    return RESULTS / f"physics_{name}.jsonl"


def trials_of(name: str) -> list[Trial]:
    path = record_of(name)
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def missing(name: str, fitter: str, seed: int) -> Iterator[tuple[Any, ...]]:
    """The trials of a seed that are not in the record yet; the settings of seed 0 come before any other."""
    from benchmarks.equations import EQUATIONS
    from benchmarks.fitters import FITTERS

    settings, seconds = FITTERS[fitter].settings, EQUATIONS[name].seconds
    for setting in settings if len(settings) > 1 else ():
        if not _has(trials_of(name), tuning := (name, fitter, setting, 0, seconds * TUNING)):
            yield tuning
    best = chosen(trials_of(name), fitter, settings)
    if not _has(trials_of(name), told := (name, fitter, best, seed, seconds)):
        yield told


def _has(trials: list[Trial], arguments: tuple[Any, ...]) -> bool:
    keys = ("equation", "fitter", "setting", "seed", "cpu_seconds")
    return any(tuple(found[key] for key in keys) == arguments for found in trials)


def complete(names: list[str], fitters: list[str], seeds: int) -> None:
    """Make the trials that are missing, the first seed of everything first, and keep each as it ends."""
    from benchmarks.fitters import fitters_of

    for seed in range(1, seeds + 1):
        for name in names:
            for fitter in fitters_of(name):
                if fitters and fitter not in fitters:
                    continue
                for arguments in missing(name, fitter, seed):
                    found = apart(*arguments)
                    with record_of(name).open("a", encoding="utf-8") as record:
                        record.write(json.dumps(found) + "\n")
                    last = found["curve"][-1:] or found["failed"]
                    print(*arguments, last, file=sys.stderr, flush=True)


def chosen(trials: list[Trial], fitter: str, settings: tuple[float, ...]) -> float:
    """The setting with the smallest validation error of seed 0; one that failed is never it."""
    first = [found for found in trials if found["fitter"] == fitter and found["seed"] == 0]
    return min(first, key=lambda found: _look(found, -1, "valid"))["setting"] if first else settings[0]


def _look(found: Trial, place: int, key: str) -> float:
    """What a look at a trial saw; infinite where there was none, or no number."""
    value = found["curve"][place][key] if found["curve"] else float("inf")
    return value if value == value else float("inf")


def summary(trials: list[Trial]) -> dict[str, dict[str, Any]]:
    """Per method: its setting, and what became of the seeds that are reported; of other settings nothing."""
    rows = {}
    for fitter in dict.fromkeys(found["fitter"] for found in trials if found["seed"]):
        own = [found for found in trials if found["fitter"] == fitter]
        best = chosen(trials, fitter, (own[0]["setting"],))
        told = [found for found in own if found["seed"] and found["setting"] == best]
        if not told:
            continue
        errors = sorted(_look(found, -1, "test") for found in told)
        rows[fitter] = {
            "setting": best,
            "tried": sorted({found["setting"] for found in own}),
            "seconds": told[0]["cpu_seconds"],
            "first": statistics.median(_look(found, 0, "seconds") for found in told),
            "steps": statistics.median(_look(found, -1, "steps") for found in told),
            "median": statistics.median(errors),
            "errors": errors,
        }
    return rows


def table(records: list[list[Trial]]) -> str:
    """The lines of the page."""
    lines = [
        "| equation, CPU s | method | setting (tried) | first steps after | steps "
        "| relative L2 error: median (all seeds) |",
        "|---" * 6 + "|",
    ]
    for trials in records:
        for fitter, row in summary(trials).items():
            tried = ", ".join(f"{value:g}" for value in row["tried"])
            errors = ", ".join(f"{value:.1e}" for value in row["errors"])
            lines.append(
                f"| {trials[0]['equation']}, {row['seconds']:g} | {fitter} | {row['setting']:g} ({tried}) "
                f"| {row['first']:.0f} s | {row['steps']:g} | {row['median']:.1e} ({errors}) |"
            )
    return "\n".join(lines) + "\n"


def records() -> list[list[Trial]]:
    """Those that there are, in the order of the equations."""
    from benchmarks.equations import EQUATIONS

    return [trials for name in EQUATIONS if (trials := trials_of(name))]


def write_page() -> None:
    text = PAGE.read_text("utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table(records())}\n{END}{after}", "utf-8")


def main() -> None:
    from benchmarks.equations import EQUATIONS
    from benchmarks.fitters import FITTERS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--equation", action="append", choices=EQUATIONS, help="some of them; all by default")
    parser.add_argument("--fitter", action="append", choices=FITTERS, help="some of them; all by default")
    parser.add_argument("--seeds", type=int, default=5, help="that are reported")
    parser.add_argument("--json", action="store_true", help="print what the records say as JSON")
    parser.add_argument("--page", action="store_true", help="write the table from the records and end")
    parser.add_argument("--trial", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.equation or list(EQUATIONS)
    if given.trial:
        print(json.dumps(trial(*given.trial)))
    elif given.page:
        write_page()
    else:
        complete(names, given.fitter or [], given.seeds)
        made = [trials for name in names if (trials := trials_of(name))]
        told = {trials[0]["equation"]: summary(trials) for trials in made}
        print(json.dumps(told) if given.json else table(made))


if __name__ == "__main__":
    run_benchmark(main)
