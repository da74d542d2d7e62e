"""What a fit by least squares has found, and how a notebook shows it."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, repr=False)
class LeastSquaresResult:
    """What was found: everything is of the parameters that are returned, `message` says why the fit ended.

    Attributes:
        loss: (1/2) sum_k weight_k mean(r_k^2).
        residuals: those of the function itself, without weights.
        optimality: the largest entry of the loss's gradient.
        cosine: the largest absolute cosine of the angles between the residuals and their derivatives by a
            parameter; zero at a minimum, whatever the units.
        covariance: of the parameters, in the order of `ravel_pytree`, for residuals that all have the same
            unknown variance where weighted; None for more than 200 parameters, or where they are not all
            determined.
        nit, accepted: steps, and those of them that were taken.
        success: whether a rule for good ends was met; status: which one, a positive number. 0 stands for the
            limit of steps, negative numbers for other ends (`natgrad.fitting.ending`).
        history: the loss before every step, its damping and whether it was taken.
    """

    parameters: Any
    loss: float
    residuals: Any
    optimality: float
    cosine: float
    covariance: np.ndarray | None
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
