"""Levenberg-Marquardt with parameters in units of their effect at the start, and with parameters as they are.

    python -m experiments.least_squares_units.run        # trials that are recorded are not repeated
    python -m experiments.least_squares_units.run --page

300 steps on two equations of `benchmarks.equations`, three seeds each; the relative L2 error at test points.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

HERE = Path(__file__).parent
RECORD, PAGE = HERE / "trials.jsonl", HERE / "table.md"
EQUATIONS, SEEDS, STEPS = ("poisson2", "heat"), (1, 2, 3), 300


def as_they_are(columns: Any, parameters: Any) -> Any:
    """No units."""
    from natgrad.fitting.units import ParameterUnits

    return ParameterUnits(jax.tree.map(jnp.ones_like, parameters))


def trial(name: str, seed: int, units: Callable[..., Any]) -> dict[str, float]:
    """The loss and the error after all steps."""
    from benchmarks import equations

    import natgrad
    from natgrad.fitting import loop

    equation = equations.EQUATIONS[name]
    start, batch = equations.fresh(equation, seed), equations.batch_of(equation, seed)
    usual, loop.parameter_units = loop.parameter_units, units  # type: ignore[assignment]
    try:
        found = natgrad.least_squares(equations.residuals_of(equation), start, batch, steps=STEPS)
    finally:
        loop.parameter_units = usual
    return {"loss": found.loss, "error": equations.relative_error(equation, 1)(found.parameters)}


def trials() -> list[dict[str, Any]]:
    """Those in the record."""
    return [json.loads(line) for line in RECORD.read_text().splitlines()] if RECORD.exists() else []


def page() -> str:
    """Medians over seeds, and every seed's error."""
    lines = ["| equation | parameters | median error | every seed's |", "|---|---|---|---|"]
    for name in EQUATIONS:
        for units in ("in units", "as they are"):
            own = [one["error"] for one in trials() if (one["equation"], one["units"]) == (name, units)]
            each = ", ".join(f"{error:.1e}" for error in own)
            lines.append(f"| {name} | {units} | {statistics.median(own):.1e} | {each} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    from natgrad.fitting.units import parameter_units

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true", help="write the table and end")
    if not parser.parse_args().page:
        jax.config.update("jax_enable_x64", True)
        ways = {"in units": parameter_units, "as they are": as_they_are}
        for name, seed, way in [(n, s, w) for n in EQUATIONS for s in SEEDS for w in ways]:
            known = {"equation": name, "units": way, "seed": seed, "steps": STEPS}
            if not any(known.items() <= one.items() for one in trials()):
                with RECORD.open("a") as record:
                    record.write(json.dumps(known | trial(name, seed, ways[way])) + "\n")
    PAGE.write_text(page())
    print(page())


if __name__ == "__main__":
    main()
