"""How many samples an objective draws for every row, for kinds of model that weigh samples."""

from typing import Annotated

from pydantic import Field, PositiveInt

from natgrad.config.sections import Section, setting

MOST_SAMPLES = 10**6  # per row: no memory holds more


class Sampled(Section):
    """How many samples an objective draws."""

    samples: PositiveInt = setting(10, "Samples per row, S.", le=MOST_SAMPLES)
    growth: tuple[tuple[PositiveInt, Annotated[int, Field(gt=0, le=MOST_SAMPLES)]], ...] = setting(
        (), "Pairs (epoch, samples): from that epoch on, that many samples."
    )

    @property
    def stages(self) -> tuple[tuple[int, int], ...]:
        """Pairs (epoch, samples), the first at 0."""
        return ((0, self.samples), *self.growth)
