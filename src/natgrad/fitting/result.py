"""What a fit by least squares has found, and how a notebook shows it."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, repr=False)
class LeastSquaresResult:
    """What was found. `success` says that a tolerance or the target was met, `message` why the fit ended.

    `loss` is (1/2) sum_k weight_k mean(r_k^2), `residuals` are those of the function itself, without weights;
    `nit` counts steps, of which `accepted` were taken. `history` has the loss before every step, its damping
    and whether it was taken.
    """

    parameters: Any
    loss: float
    residuals: Any
    optimality: float
    nit: int
    accepted: int
    success: bool
    status: int
    message: str
    seconds: float
    history: dict[str, np.ndarray]

    def __repr__(self) -> str:
        """In two lines: the loss, how many steps it took, and why the fit ended."""
        spent = f"{self.nit:,} steps, {self.accepted:,} of them taken, {self.seconds:.1f} s"
        return f"LeastSquaresResult: loss {self.loss:.8g}\n  {spent}: {self.message}"

    def _repr_html_(self) -> str:
        """For notebooks: the same, and the loss before every step."""
        from matplotlib.figure import Figure

        from natgrad.evaluate.notebook import html_with_pictures, png_of

        figure = Figure(figsize=(5, 3.2), dpi=110, layout="constrained")
        axes = figure.subplots()
        axes.semilogy(self.history["loss"])
        axes.set(xlabel="step", ylabel="loss")
        return html_with_pictures(repr(self), [png_of(figure)])
