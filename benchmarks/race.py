"""Optimizers of one network against each other at equal CPU seconds of steps.

Every optimizer has five settings and the same seconds; compiling and evaluating are not counted, but the
first step is told. Seed 0, which is not reported, decides each optimizer's setting by the loss of the
training rows at the end. Trials are added to a record as they end, so that it is completed by the same
command; `--page` writes the table into docs/networks.md.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import optax

from natgrad.layers.outputs import Output
from natgrad.optax import (
    Options,
    constant,
    divergence_ball,
    factored_solve,
    kronecker_blocks,
    learning_rate,
    linked,
    natural_gradient,
)

EVALUATED, LOOKS, TOGETHER = 2000, 20, 20
RESULTS, PAGE = Path("benchmarks/results"), Path("docs/networks.md")
END = "<!-- end of the measured table -->\n"
Trial = dict[str, Any]


class Race(NamedTuple):
    """A network, what it learns, and who trains it.

    Attributes:
        name: of the benchmark and of its record; digits: of losses in the table; batch: rows of a step.
        fresh: new parameters from a seed; loss: the mean over rows (inputs, targets).
        rows: training and test rows, each (inputs, targets).
        optimizers: how each is made of a setting, and its settings.
    """

    name: str
    digits: int
    batch: int
    fresh: Callable[[int], Any]
    loss: Callable[[Any, Any, Any], Any]
    rows: Callable[[], tuple[tuple[Any, Any], tuple[Any, Any]]]
    optimizers: dict[str, tuple[Callable[[float], optax.GradientTransformation], tuple[float, ...]]]

    @property
    def record(self) -> Path:
        """The file of its trials."""
        return RESULTS / f"{self.name}.jsonl"

    @property
    def begin(self) -> str:
        """What its table stands after."""
        return f"<!-- measured: python -m benchmarks.{self.name} --page -->\n"


def bounded_blocks(
    network: Any, output: Output, example: Any, *, damping: float
) -> Callable[[float], optax.GradientTransformation]:
    """K-FAC with a little momentum, renewed every 20 steps; no step is longer than so many nats a row."""

    def blocks(radius: float) -> optax.GradientTransformation:
        length = divergence_ball(radius, longest=learning_rate(0.1))
        options = Options(damping=constant(damping), refresh=20, length=length)
        parts = {"metric": kronecker_blocks(decay=0.8), "solver": factored_solve(), "options": options}
        measured = natural_gradient(network, output, **parts, example=example)
        return linked(measured, optax.trace(0.5), optax.scale(-1.0))

    return blocks


def train(race: Race, make: optax.GradientTransformation, seed: int, data: Any, seconds: float) -> Trial:
    """What is seen on the way, and the CPU seconds of the first step."""
    optimizer, ((x, y), test) = optax.with_extra_args_support(make), data

    @jax.jit
    def step(params, state, key):
        chosen = jax.random.randint(key, (race.batch,), 0, x.shape[0])
        inputs, targets = x[chosen], y[chosen]
        gradient = jax.grad(race.loss)(params, inputs, targets)
        updates, state = optimizer.update(gradient, state, params, inputs=inputs)
        return optax.apply_updates(params, updates), state

    value, params = jax.jit(race.loss), race.fresh(seed)
    state, spent, steps, curve = optimizer.init(params), 0.0, 0, []
    began = time.process_time()
    jax.block_until_ready(step(params, state, jax.random.key(0)))
    first = time.process_time() - began
    while spent < seconds:
        began = time.process_time()
        for _ in range(TOGETHER):
            steps += 1
            params, state = step(params, state, jax.random.fold_in(jax.random.key(seed), steps))
        jax.block_until_ready(params)
        spent += time.process_time() - began
        if not curve or spent >= curve[-1]["seconds"] + seconds / LOOKS or spent >= seconds:
            seen = {"train": (x, y), "test": test}
            losses = {
                name: round(float(value(params, *(part[:EVALUATED] for part in rows))), race.digits + 2)
                for name, rows in seen.items()
            }
            curve.append({"seconds": round(spent, 2), "steps": steps} | losses)
    return {"curve": curve, "first_step_cpu_seconds": round(first, 1)}


def trials(race: Race) -> list[Trial]:
    """Those in the record."""
    path = race.record
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def chosen(race: Race, name: str) -> float:
    """The setting with the smallest loss of seed 0; one without a finite loss is never it."""
    first = [found for found in trials(race) if (found["optimizer"], found["seed"]) == (name, 0)]
    return min(first, key=lambda found: _end(found, "train"))["setting"]


def _end(found: Trial, key: str) -> float:
    value = found["curve"][-1][key]
    return value if value == value else float("inf")


def complete(race: Race, seconds: float, seeds: int) -> None:
    """Run what the record lacks."""
    data = race.rows()
    for seed in range(seeds + 1):
        for name, (make, settings) in race.optimizers.items():
            for setting in (chosen(race, name),) if seed else settings:
                known = {"optimizer": name, "setting": setting, "seed": seed, "cpu_seconds": seconds}
                if any(found.items() >= known.items() for found in trials(race)):
                    continue
                found = known | train(race, make(setting), seed, data, seconds)
                with race.record.open("a", encoding="utf-8") as record:
                    record.write(json.dumps(found) + "\n")
                print(known, found["curve"][-1], file=sys.stderr, flush=True)


def table(race: Race) -> str:
    """A line for every optimizer: losses after equal seconds and equal steps, and when it met Adam's end."""
    found = [one for one in trials(race) if one["seed"]]
    told = {name: [one for one in found if one["optimizer"] == name] for name in race.optimizers}
    told = {name: own for name, own in told.items() if own}
    fewest = min(one["curve"][-1]["steps"] for one in found)
    heads = ("optimizer", "setting (tried)", "seeds", "steps", "train", "test", f"train after {fewest} steps")
    heads += ("at Adam's end after", "first step, CPU s")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, own in sorted(told.items(), key=lambda pair: _mean(pair[1], "train")):
        tried = ", ".join(f"{value:g}" for value in race.optimizers[name][1])
        early = [min(one["curve"], key=lambda seen: abs(seen["steps"] - fewest))["train"] for one in own]
        first = statistics.median(one["first_step_cpu_seconds"] for one in own)
        numbers = [
            f"{_mean(own, 'steps'):.0f}",
            *(_spread(own, key, race.digits) for key in ("train", "test")),
        ]
        said = [name, f"{own[0]['setting']:g} ({tried})", str(len(own)), *numbers]
        said += [f"{statistics.fmean(early):.{race.digits}f}", _level(own, told["adam"]), f"{first:.0f}"]
        lines.append(f"| {' | '.join(said)} |")
    return "\n".join(lines) + "\n"


def _level(own: list[Trial], adam: list[Trial]) -> str:
    """The mean share of Adam's seconds after which the training loss is at Adam's end, seed by seed."""
    ends = {one["seed"]: _end(one, "train") for one in adam}
    when = [
        next((seen["seconds"] for seen in one["curve"] if seen["train"] <= ends[one["seed"]]), None)
        for one in own
    ]
    if None in when:
        return "never"
    return f"{statistics.fmean(when) / own[0]['cpu_seconds']:.2f} of its seconds"


def _mean(own: list[Trial], key: str) -> float:
    return statistics.fmean(_end(one, key) for one in own)


def _spread(own: list[Trial], key: str, digits: int) -> str:
    ends = ", ".join(f"{_end(one, key):.{digits}f}" for one in own)
    return f"{_mean(own, key):.{digits}f} ({ends})"


def measured(race: Race) -> str:
    """The table with what stands before and after it on the page."""
    return f"{race.begin}\n{table(race)}\n{END}"


def write_page(race: Race) -> None:
    """Put the table where it stands."""
    before, rest = PAGE.read_text("utf-8").split(race.begin)
    PAGE.write_text(f"{before}{measured(race)}{rest.split(END, 1)[1]}", "utf-8")


def run(race: Race, about: str) -> None:
    """The command line of a race."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seeds", type=int, default=3, help="that are reported")
    parser.add_argument("--page", action="store_true", help="write the table from the record and end")
    given = parser.parse_args()
    if not given.page:
        complete(race, given.seconds, given.seeds)
    write_page(race)
