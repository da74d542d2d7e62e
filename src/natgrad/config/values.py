"""What the values of data are, for kinds of model that take binary or real ones."""

from typing import Literal

from natgrad.config import sections
from natgrad.config.sections import setting


class BinaryOrReal(sections.Data):
    """Which data, what their values are, and how rows are split."""

    binarize: Literal["round", "resample", "real"] | None = setting(
        None,
        "Gray values are rounded once, drawn again at every use, or kept as real numbers.",
        unset="that of the data set",
    )
