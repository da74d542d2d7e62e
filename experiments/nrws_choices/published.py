"""What the published code takes for generation's Fisher: dreams, weighted by the weights of other samples.

    python -m experiments.nrws_choices.published config      # or mnist

trains it in the place of `metric.generation = "wake"`, with the settings and seeds of the variant "p wake, q
wake" of `config.toml` or `mnist.toml`. The record is `published_<name>.jsonl` (what it has is not trained
again), the table `published_<name>.md`.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import IO

from jaxtyping import Array, PRNGKeyArray

import natgrad
from experiments import table
from natgrad.core import Carry, Metric
from natgrad.errors import InputError
from natgrad.metrics.blocks import UnitBlocks
from natgrad.metrics.layered import LayeredFisher
from natgrad.models.helmholtz import methods
from natgrad.models.helmholtz.fisher import curvature
from natgrad.models.helmholtz.machine import Helmholtz
from natgrad.models.helmholtz.phases import Phases
from natgrad.sweep import plan as plans
from natgrad.sweep import record as records
from natgrad.sweep.choice import Results, best_candidates
from natgrad.sweep.plan import Candidate
from natgrad.tree import map_layers

HERE = Path(__file__).parent
VARIANT, LIKE = "published code", "p wake, q wake"


def generation_as_published(limit: int | None = None) -> Metric:
    """Blocks over n = S times rows dreams, each with the weight of the wake sample at its place.

    These weights have nothing to do with the dreams, and sum to one for every datum: the blocks are about S
    times smaller than the Fisher's, and vary more. Of the rows the first `limit` are taken, with the same
    total weight.
    """

    def measure(
        key: PRNGKeyArray, carry: Carry, model: Helmholtz, drawn: Phases
    ) -> tuple[LayeredFisher, Carry]:
        del key
        weights = (drawn.weights / drawn.weights.size).reshape(-1)
        kept = weights[:limit] * (weights.sum() / weights[:limit].sum())

        def layer(inputs: Array, logit: Array) -> UnitBlocks:
            rows = lambda values: values.reshape(len(values), -1)[:, :limit]  # noqa: E731
            return UnitBlocks(rows(inputs), kept * curvature(rows(logit)))

        blocks = map_layers(layer, drawn.dreams.values[1:], drawn.dreams.generation[:-1])
        prior = curvature(model.prior) / drawn.weights.shape[1]
        return LayeredFisher({"prior": prior, "generation": blocks}), carry

    return Metric(lambda key, model, drawn: (), measure)


def results(name: str, stream: IO[str] | None = None) -> Results:
    """The grid, and what its record has; with a stream, results are appended to it."""
    plan = plans.read_plan(HERE / f"{name}.toml", {})
    grid = [each._replace(variant=VARIANT) for each in plan.candidates if each.variant == LIKE]
    section = plan.section
    if stream is None:
        return Results(section, grid, records.read_record(record_of(name), section))
    return Results(section, grid, records.record_in(stream, section))


def record_of(name: str) -> Path:
    return HERE / f"published_{name}.jsonl"


def train(name: str) -> None:
    """Train what the record lacks: every setting, then the best with the seeds that confirm it."""
    methods.SOURCES["generation"]["wake"] = generation_as_published
    with record_of(name).open("a+", encoding="utf-8") as stream:
        found = results(name, stream)
        for candidate in found.candidates:
            for seed in candidate.seeds:
                settle(found, candidate, seed)
        for choice in best_candidates(found):
            for seed in found.section.confirm:
                settle(found, found.candidates[choice.number], seed)


def settle(found: Results, candidate: Candidate, seed: int) -> None:
    """Train a setting with a seed and write down how it ended, unless that is known."""
    if found.record.rows(candidate, seed) is not None:
        return
    began, ending = time.perf_counter(), {}
    with tempfile.TemporaryDirectory() as place:
        try:
            run = natgrad.train(out=Path(place) / "run", **candidate.setting | {"seed": seed})
            ending["rows"] = records.compared_figures(run.trace)
        except InputError as error:
            ending["error"] = str(error)
    found.record.add(candidate, seed, ending | {"wall_seconds": round(time.perf_counter() - began, 1)})
    print(candidate.setting, seed, ending.get("error", "trained"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=["config", "mnist"], help="the file whose settings are taken")
    name = parser.parse_args().name
    train(name)
    text = table.page(results(name))
    record_of(name).with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
