"""Networks trained on differential equations: relative error after the same CPU seconds for every method.

    taskset -c 0 python -m benchmarks.physics --equation heat --json > benchmarks/results/physics_heat.json

Every trial is a process of its own, one after the other, on one core, in float64. Its clock is CPU time from
before the first compilation, measurements left out. The first seed decides each method's setting by the error
at validation points; the others repeat it; errors at test points are reported. `--page` writes the table into
docs/least_squares.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULTS, PAGE = Path("benchmarks/results"), Path("docs/least_squares.md")
BEGIN, END = (
    "<!-- measured: python -m benchmarks.physics --page -->\n",
    "<!-- end of the measured table -->\n",
)


def trial(name: str, fitter: str, setting: float, seed: int, seconds: float) -> dict[str, Any]:
    """One training, and its errors as time goes by."""
    import jax

    jax.config.update("jax_enable_x64", True)
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

    FITTERS[fitter][0](equation, start, batch, setting, report)
    return {"fitter": fitter, "setting": setting, "seed": seed, "curve": curve}


def apart(*arguments: Any) -> dict[str, Any]:
    """The same in a process of its own; one that fails is recorded as such."""
    command = [sys.executable, "-m", "benchmarks.physics", "--trial", json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        failed = dict(zip(("fitter", "setting", "seed"), arguments[1:4], strict=True))
        return failed | {"curve": [], "failed": done.stderr.strip().splitlines()[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, seeds: int, seconds: float) -> dict[str, Any]:
    from benchmarks.fitters import FITTERS

    trials: list[dict[str, Any]] = []

    def run(fitter: str, setting: float, seed: int) -> None:
        trials.append(apart(name, fitter, setting, seed, seconds))
        last = trials[-1]["curve"][-1:] or trials[-1]["failed"]
        print(f"{name} {fitter:22} {setting:<8g} seed {seed} {last}", file=sys.stderr, flush=True)

    for fitter, (_, settings) in FITTERS.items():
        for setting in settings:
            run(fitter, setting, 0)
        for seed in range(1, seeds):
            run(fitter, chosen(trials, fitter), seed)
    cores = len(os.sched_getaffinity(0))
    return {"equation": name, "cpu_seconds": seconds, "seeds": seeds, "cores": cores, "trials": trials}


def chosen(trials: list[dict[str, Any]], fitter: str) -> float:
    """The setting whose first seed ends with the smallest validation error; one that failed is never it."""
    first = [found for found in trials if found["fitter"] == fitter and found["seed"] == 0]
    return min(first, key=lambda found: _end(found, "valid"))["setting"]


def _end(found: dict[str, Any], key: str) -> float:
    value = found["curve"][-1][key] if found["curve"] else float("inf")
    return value if value == value else float("inf")


def summary(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Per method: its setting, and the errors of all seeds at the end."""
    rows = {}
    for fitter in dict.fromkeys(found["fitter"] for found in record["trials"]):
        setting = chosen(record["trials"], fitter)
        own = [f for f in record["trials"] if (f["fitter"], f["setting"]) == (fitter, setting)]
        tried = {f["setting"] for f in record["trials"] if f["fitter"] == fitter}
        errors = sorted(_end(found, "test") for found in own)
        steps = statistics.median(_end(found, "steps") for found in own)
        median = statistics.median(errors)
        rows[fitter] = {
            "setting": setting,
            "tried": sorted(tried),
            "errors": errors,
            "median": median,
            "steps": steps,
        }
    return rows


def table(records: list[dict[str, Any]]) -> str:
    """The lines of the page."""
    lines = [
        "| equation | method | setting (tried) | steps | relative L2 error: median (all seeds) |",
        "|---" * 5 + "|",
    ]
    for record in records:
        head = f"{record['equation']}, {record['cpu_seconds']:g} CPU s"
        for fitter, row in summary(record).items():
            tried = ", ".join(f"{value:g}" for value in row["tried"])
            errors = ", ".join(f"{value:.1e}" for value in row["errors"])
            lines.append(
                f"| {head} | {fitter} | {row['setting']:g} ({tried}) "
                f"| {row['steps']:g} | {row['median']:.1e} ({errors}) |"
            )
    return "\n".join(lines) + "\n"


def records() -> list[dict[str, Any]]:
    return [json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("physics_*.json"))]


def write_page() -> None:
    text = PAGE.read_text("utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table(records())}\n{END}{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--equation", default="poisson2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of CPU time, for every trial")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", action="store_true", help="write the table from the records and end")
    parser.add_argument("--trial", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.trial:
        print(json.dumps(trial(*given.trial)))
    elif given.page:
        write_page()
    else:
        found = measure(given.equation, given.seeds, given.seconds)
        print(json.dumps(found) if given.json else table([found]))


if __name__ == "__main__":
    main()
