"""Evaluations to target, success rates and speed of `natgrad.minimize` against pycma, cmaes and evosax.

    python -m benchmarks.minimize continuous --sizes 5,20,40 --seeds 15 --seconds 60 --out continuous.jsonl
    python -m benchmarks.minimize binary --sizes 50,100,200 --seeds 15 --out binary.jsonl
    python -m benchmarks.minimize speed
    python -m benchmarks.minimize table continuous.jsonl

Needs the extra `opponents`. Every cell is one line of JSON, and cells already in --out are not run again.
`--seconds` is the CPU share of a cell of the opponents that run in Python: the table says for how many seeds
it was enough.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np

from benchmarks import opponents
from natgrad.relax import functions
from natgrad.relax.plan import make

CONTINUOUS = ("sphere", "ellipsoid", "discus", "cigar", "rosenbrock", "rastrigin", "ackley")
BINARY = ("onemax", "leadingones", "nk", "maxcut", "sat")
RESTARTS = 9


def continuous(solver: str, name: str, size: int, arguments) -> list[opponents.Run]:
    budget, seeds = 10_000 * size, arguments.seeds
    restarts = RESTARTS if name in ("rastrigin", "ackley") else 0
    if solver == "natgrad":
        return opponents.natgrad_continuous(name, size, seeds, budget, method="adaptive", restarts=restarts)
    if solver == "natgrad xnes":
        return opponents.natgrad_continuous(name, size, seeds, budget, method="xnes", restarts=0)
    if solver == "evosax cma":
        return opponents.evosax_cma(name, size, seeds, budget)
    if solver == "pycma":
        runs = opponents.pycma_runs(name, size, seeds, budget, restarts=restarts)
    else:
        kind = {"cmaes cma": "CMA", "cmaes xnes": "XNES"}[solver]
        runs = opponents.cmaes_runs(name, size, seeds, budget, kind=kind)
    return opponents.limited(runs, arguments.seconds)


def binary(solver: str, name: str, size: int, arguments) -> list[opponents.Run]:
    problem = functions.named_problem(name, size)
    family = "pairwise" if solver == "pairwise" else "bernoulli"
    options = {
        "natgrad": {"method": "adaptive"},
        "pbil": {"method": "pbil", "population": 50},
        "umda": {"method": "umda"},
        "cga": {"method": "cga", "rate": 1 / (3 * np.sqrt(size) * np.log(size))},
        "pairwise": {"edges": problem.edges},
    }[solver]
    target = {"nk": -1.0}.get(name, 0.0)
    plan, budget = make(size, family, options), arguments.budget * size
    return opponents.natgrad_runs(
        problem, plan, None, arguments.seeds, budget, target, RESTARTS if solver == "natgrad" else 0
    )


CELLS = {
    "continuous": (
        CONTINUOUS,
        ("natgrad", "pycma", "cmaes cma", "natgrad xnes", "cmaes xnes", "evosax cma"),
        continuous,
    ),
    "binary": (BINARY, ("natgrad", "pbil", "cga", "umda", "pairwise"), binary),
}


def run(arguments) -> None:
    names, solvers, cell = CELLS[arguments.kind]
    names = arguments.functions or names
    solvers = arguments.solvers or solvers
    out = Path(arguments.out)
    done = {(row["solver"], row["function"], row["size"]) for row in read(out)}
    for size in arguments.sizes:
        for solver in solvers:
            for name in names:
                if (solver, name, size) in done or (
                    solver == "pairwise" and name in ("onemax", "leadingones")
                ):
                    continue
                began = time.process_time()
                with jax.enable_x64(True):
                    runs = cell(solver, name, size, arguments)
                row = {"solver": solver, "function": name, "size": size, "runs": runs}
                row["cpu_seconds"] = round(time.process_time() - began, 2)
                with out.open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
                print(line(row), flush=True)


def read(path: Path) -> list[dict]:
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def summary(row: dict) -> tuple[str, str, str]:
    """Median evaluations to the target (infinite where most did not arrive), arrivals, median best value."""
    used = [e if reached else np.inf for e, _, reached in row["runs"]]
    middle = np.median(used)
    arrived = sum(reached for *_, reached in row["runs"])
    best = np.median([value for _, value, _ in row["runs"]])
    return f"{middle:,.0f}" if np.isfinite(middle) else "-", f"{arrived}/{len(row['runs'])}", f"{best:.3g}"


def line(row: dict) -> str:
    middle, arrived, best = summary(row)
    name = f"{row['function']:12} {row['size']:4d} {row['solver']:13}"
    return f"{name} {middle:>9} {arrived:>6} {best:>9} {row['cpu_seconds']:8.1f} s"


def table(path: Path) -> str:
    """Markdown: median evaluations to the target (runs that arrived), else the median best value."""
    rows = read(path)
    solvers = list(dict.fromkeys(row["solver"] for row in rows))
    found = {(row["function"], row["size"], row["solver"]): summary(row) for row in rows}
    lines = ["| function | n | " + " | ".join(solvers) + " |", "|---|---|" + "---|" * len(solvers)]
    for name, size in sorted({(row["function"], row["size"]) for row in rows}):
        texts = [_text(found.get((name, size, solver))) for solver in solvers]
        lines.append(f"| {name} | {size} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _text(cell: tuple[str, str, str] | None) -> str:
    if cell is None:
        return ""
    middle, arrived, best = cell
    return f"best {best} ({arrived})" if middle == "-" else f"{middle} ({arrived})"


def speed(generations: int = 1000, size: int = 40) -> dict:
    """Seconds of 1,000 generations in 40 dimensions: natgrad with compilation, natgrad again, pycma."""
    import cma

    from natgrad.relax.minimize import minimize

    problem = functions.named_problem("ellipsoid", size)
    population = 4 + int(3 * np.log(size))
    found = {}
    for label in ("natgrad_first", "natgrad_again"):
        began = time.process_time(), time.perf_counter()
        result = minimize(problem.function, [3.0] * size, spread=2.0, budget=population * generations)
        found[label] = {"cpu": time.process_time() - began[0], "wall": time.perf_counter() - began[1]}
        assert result.generations == generations
    function = opponents.plain("ellipsoid")
    began = time.process_time(), time.perf_counter()
    search = cma.CMAEvolutionStrategy([3.0] * size, 2.0, {"seed": 1, "verbose": -9, "verb_log": 0})
    for _ in range(generations):
        points = search.ask()
        search.tell(points, [function(point) for point in points])
    found["pycma"] = {"cpu": time.process_time() - began[0], "wall": time.perf_counter() - began[1]}
    found["ratio_cpu"] = found["pycma"]["cpu"] / found["natgrad_again"]["cpu"]
    found["ratio_cpu_with_compilation"] = found["pycma"]["cpu"] / found["natgrad_first"]["cpu"]
    return found


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def words(text: str) -> list[str]:
    return text.split(",")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=[*CELLS, "speed", "table"])
    parser.add_argument("file", nargs="?")
    parser.add_argument("--sizes", type=numbers, default=[5])
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--functions", type=words)
    parser.add_argument("--solvers", type=words)
    parser.add_argument("--budget", type=int, default=100, help="evaluations per variable (binary)")
    parser.add_argument("--out", default="minimize.jsonl")
    arguments = parser.parse_args()
    if arguments.kind == "table":
        print(table(Path(arguments.file)))
    elif arguments.kind == "speed":
        print(json.dumps(speed(), indent=1))
    else:
        run(arguments)


if __name__ == "__main__":
    main()
