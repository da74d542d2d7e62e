"""A minimization with a folder: begun or continued, watched, and ended with a plot."""

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console

from natgrad.errors import InputError, check_counts
from natgrad.evaluate.pictures import save_figure
from natgrad.records.folder import check_writable
from natgrad.relax import functions, saved
from natgrad.relax.search import Search

EVERY = 2.0  # seconds between two lines of progress


def open_search(name: str, size: int, choices: Any, out: Path | None) -> tuple[Callable[..., Any], Search]:
    """The function and a search for it: the one in the folder, if there is one, else a new one."""
    check_counts(size=size)
    if out is not None:
        check_writable(out, "the search")
    problem = _problem(name, size, choices.family)
    if out is not None and (out / saved.NAME).exists():
        search = Search.load(out)
        if search.base.size != size:
            raise InputError(
                f"the search in {out} has {search.base.size} variables, not {size}; "
                f"give --size {search.base.size} or another --out"
            )
        return problem.function, search
    family = choices.family or problem.family
    continuous = family in ("gaussian", "diagonal")
    options: dict[str, Any] = {"population": choices.population, "restarts": choices.restarts}
    options |= {"method": choices.method} if choices.method else {}
    options |= {"spread": problem.spread} if continuous else {}
    options |= {"edges": problem.edges} if family == "pairwise" else {}
    start = [problem.start] * size if continuous else size
    return problem.function, Search(start, family=family, seed=choices.seed, target=choices.target, **options)


class Watch:
    """A line of progress now and then, on stderr; the search is saved as often, and at the end."""

    def __init__(self, search: Search, out: Path | None, *, quiet: bool) -> None:
        self.search, self.out, self.quiet = search, out, quiet
        self.console, self.last = Console(stderr=True), time.monotonic()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.out is not None:
            self.search.save(self.out)

    def __call__(self, search: Search) -> None:
        """Tell how the search stands."""
        if time.monotonic() - self.last < EVERY:
            return
        self.last = time.monotonic()
        if self.out is not None:
            search.save(self.out)
        if not self.quiet:
            text = f"{search.evaluations:9,d} evaluations  best {search.best_value:.6g}"
            text += f"  restart {search.restart}" if search.restart else ""
            self.console.print(text, highlight=False)


def finish(name: str, result: Any, out: Path | None) -> dict[str, Any]:
    """What to print; with a folder, the plot is written."""
    found = {
        "function": name,
        "value": result.value,
        "evaluations": result.evaluations,
        "generations": result.generations,
        "restarts": result.restarts,
        "invalid": result.invalid,
        "success": result.success,
        "message": result.message,
        "seconds": result.seconds,
        "point": [float(value) for value in result.point],
    }
    if out is not None:
        plot(out / "convergence.png", name, result.history)
        found |= {"folder": str(out), "picture": str(out / "convergence.png")}
    return found


def plot(path: Path, name: str, history: dict[str, np.ndarray]) -> None:
    """Write the picture of a search's convergence."""
    save_figure(path, convergence_figure(name, history))


def convergence_figure(name: str, history: dict[str, np.ndarray]) -> Any:
    """Best value so far, values of each generation and the width of the distribution, against evaluations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.6), dpi=120, layout="constrained")
    axes = figure.subplots()
    count, best = history["evaluations"], history["best"]
    finite = np.isfinite(history["generation_median"])
    axes.plot(
        count[finite],
        history["generation_median"][finite],
        color="0.7",
        lw=0.8,
        label="median of a generation",
    )
    axes.plot(count, best, color="#c8321e", lw=1.8, label="best so far")
    if np.all(best > 0):
        axes.set_yscale("log")
    axes.set(xlabel="evaluations", ylabel="value", title=name)
    axes.legend()
    return figure


def _problem(name: str, size: int, family: str | None) -> functions.SearchProblem:
    if ":" not in name:
        return functions.named_problem(name, size)
    path, _, attribute = name.rpartition(":")
    specification = importlib.util.spec_from_file_location("natgrad_user_function", path)
    if not Path(path).is_file() or specification is None or specification.loader is None:
        raise InputError(f"there is no Python file {path}; give FILE.py:NAME or the name of a known function")
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"{path} cannot be imported ({type(error).__name__}: {error}); correct it"
        ) from error
    if not callable(getattr(module, attribute, None)):
        raise InputError(f"{path} has no function {attribute!r}; give FILE.py:NAME")
    return functions.SearchProblem(getattr(module, attribute), family or "gaussian")
