"""Draw the slides' figures again: seven pictures and, in ends.json, where every flow ends.

python -m experiments.slides_flows.run
"""

import json
from pathlib import Path

from natgrad.relax import examples, figures

HERE = Path(__file__).parent
FLOWS = {
    "square": ("x1 + 2 x2 + 3 x1 x2", "bernoulli"),
    "quadratic": ("x - 3x^2", "gaussian"),
    "quartic": ("6x + 8x^2 - x^3 - 2x^4", "gaussian"),
    "plane": ("x1 + 2 x2 - 3 x1^2 - 2 x1 x2 - 2 x2^2", "gaussian"),
}


def main() -> None:
    ends = {name: figures.draw_flows(*what, out=HERE / f"{name}.png")["ends"] for name, what in FLOWS.items()}
    ends["polarization"] = examples.draw_polarization(HERE / "polarization.png")["ends"]
    ends["likelihood"] = examples.draw_likelihood(HERE / "likelihood.png")["ends"]
    figures.draw_ball(HERE / "ball.png")
    (HERE / "ends.json").write_text(json.dumps(ends, indent=1) + "\n")


if __name__ == "__main__":
    main()
