"""The table and figure of a sweep: each variant at its own best setting, chosen on validation data.

    python -m experiments.table experiments/nrws_choices/config.toml

reads the record beside the file, `<name>.jsonl`, and writes `<name>.md` and `<name>.png`. Nothing is trained,
no data are read. Settings are chosen as `natgrad sweep` does it; values are means over the seeds that
confirm a setting, never over the seed that chose it, unless it ran alone.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from natgrad.sweep import plan as plans
from natgrad.sweep import record as records
from natgrad.sweep.choice import Results, best_candidates, deciding_row, score
from natgrad.sweep.compare import best_lines, varied
from natgrad.sweep.table import brief, doubts


def results(file: Path) -> Results:
    """What a sweep's file asks for, and what the record beside it has."""
    plan = plans.read_plan(file, {})
    record = records.read_record(file.with_suffix(".jsonl"), plan.section)
    return Results(plan.section, plan.candidates, record)


def best(found: Results) -> dict[str, list[dict]]:
    """The trials of every variant's best setting that count and have a result, in the order of the record."""
    lines = {}
    for choice in best_candidates(found):
        candidate = found.candidates[choice.number]
        tried = [found.record.line(candidate, seed) for seed in choice.seeds]
        lines[candidate.variant] = [
            line for line in tried if line and deciding_row(line.get("rows"), found.section) is not None
        ]
    return {name: lines[name] for name in recorded(found) if name in lines}


def is_trial(trial: dict, settings: dict) -> bool:
    """Whether a config is that of a line of the record."""
    given = {"seed": trial["seed"]} | trial["settings"]
    return all(_at(settings, name) == value for name, value in given.items())


def _at(settings: dict, name: str) -> object:
    found: object = settings
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def recorded(found: Results) -> list[str]:
    """The variants, those first that were recorded first."""
    written = [line["variant"] for line in found.record.known.values()]
    return list(dict.fromkeys([*written, *(candidate.variant for candidate in found.candidates)]))


def differing(found: Results) -> list[str]:
    """The settings in which trials differ, by the names that the record has."""
    place = {name: number for number, name in enumerate(recorded(found))}
    lines = sorted(found.record.known.values(), key=lambda line: place[line["variant"]])
    return varied([dict(sorted(line["settings"].items())) for line in lines])


def text(name: str, value: float) -> str:
    """A value as its column has it: shares of wrong classes in percent."""
    return f"{100 * value:.2f} %" if name.endswith("_error") and "squared" not in name else f"{value:.2f}"


def title(name: str) -> str:
    split, _, what = name.partition("_")
    known = {"ll": "LL", "elbo": "ELBO"}.get(what, what.replace("_", " "))
    return ("validation " if split == "valid" else "test ") + known


def rows(found: Results) -> list[str]:
    """One line per variant, the best first."""
    section = found.section
    keys = [key for key in differing(found) if key != "method"]
    clock = clock_of(found)
    heads = ["variant", "setting", "seeds", *map(title, section.columns), "epochs", CLOCKS[clock]]
    lines = []
    for name, trials in best(found).items():
        setting = {key: trials[0]["settings"][key] for key in keys if key in trials[0]["settings"]}
        ends = [deciding_row(trial["rows"], section) for trial in trials]
        said = [name, ", ".join(f"{brief(key)} {value}" for key, value in setting.items())]
        line = f"| {' | '.join([*said, *figures(ends, clock, *section.columns)])} |"
        lines.append((score(section, mean(ends, section.criterion)), line))
    lines.sort(key=lambda pair: -pair[0])
    return [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *(line for _, line in lines)]


CLOCKS = {"seconds": "seconds", "cpu_seconds": "CPU seconds"}


def clock_of(found: Results) -> str:
    """The seconds of the processor where all trials have them, otherwise those of the clock."""
    ends = [trial["rows"][-1] for trials in best(found).values() for trial in trials]
    return "cpu_seconds" if ends and all("cpu_seconds" in end for end in ends) else "seconds"


def figures(ends: list[dict], clock: str, *columns: str) -> list[str]:
    """How many trials there are, and the means of what they reached; the last column has its spread."""
    *others, test = columns
    reached = text(test, mean(ends, test))
    if len(ends) > 1:
        reached += f" (sd {text(test, np.std([end[test] for end in ends], ddof=1))})"
    seconds = f"{mean(ends, clock):.0f}"
    means = [text(name, mean(ends, name)) for name in others]
    return [str(len(ends)), *means, reached, str(ends[0]["epoch"]), seconds]


def mean(ends: list[dict], name: str) -> float:
    return float(np.mean([end[name] for end in ends]))


def draw(found: Results, path: Path) -> None:
    """Each test column against epochs and against seconds of training, the last one first."""
    from matplotlib.figure import Figure

    last = found.section.columns[-1]
    tests = [last, *(name for name in found.section.columns[:-1] if name.startswith("test_"))]
    figure = Figure(figsize=(11, 4.6 * len(tests)), dpi=120, layout="constrained")
    panels = figure.subplots(len(tests), 2, sharey="row", squeeze=False)
    for test, pair in zip(tests, panels, strict=True):
        _draw_column(found, test, *pair)
    panels[0, 1].legend(fontsize=7)
    figure.savefig(path)


def _draw_column(found: Results, test: str, left: Any, right: Any) -> None:
    """One column, means over seeds."""
    clock = clock_of(found)
    for name, trials in best(found).items():
        curves = np.array([[row[test] for row in trial["rows"][1:]] for trial in trials]).mean(axis=0)
        for axes, key in ((left, "epoch"), (right, clock)):
            at = np.array([[row[key] for row in trial["rows"][1:]] for trial in trials]).mean(axis=0)
            axes.plot(at, curves, marker=".", lw=1.2, label=name)
    left.set_xlabel("epochs")
    right.set_xlabel(f"{CLOCKS[clock]} of training")
    left.set_ylabel("test log-likelihood (nats)" if test == "test_ll" else title(test))
    if not test.endswith(("_ll", "_elbo")):
        left.set_yscale("log")
    left.grid(alpha=0.3)
    right.grid(alpha=0.3)


def page(found: Results) -> str:
    """The table, and under it where it deserves doubt."""
    return "\n\n".join(["\n".join(rows(found)), *doubts(found, best_lines(found))]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="+", help="a sweep's file, with its record beside it")
    for file in parser.parse_args().file:
        found = results(file)
        file.with_suffix(".md").write_text(page(found))
        draw(found, file.with_suffix(".png"))
        print(page(found))


if __name__ == "__main__":
    main()
