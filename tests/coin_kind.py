"""A kind of model of somebody else's: its settings, a short name of its own, and a command."""

from pathlib import Path
from typing import Literal

from pydantic import PositiveInt

from natgrad.config import sections
from natgrad.config.sections import setting
from natgrad.models.registry import Column, Spec


class Coin(sections.ModelSection):
    """A coin."""

    sides: PositiveInt = setting(2, "Sides of the coin.")
    faces: tuple[PositiveInt, ...] = setting((1, 2), "What is on them.")
    metal: Literal["silver", "gold"] = setting("silver", "What it is made of.")
    weight: float | None = setting(None, "Its weight.", unset="weighed")


def toss(run: Path, *, times: int = 3) -> dict:
    """Toss the coin of a run.

    Args:
        run: A run folder.
        times: How often.
    """
    return {"run": str(run), "times": times, "tosses": [{"toss": n, "side": 1} for n in range(times)]}


def settings(method):
    return sections.compose("coin", method, model=Coin, optimizer=sections.Rate)


SPEC = Spec(
    kinds={"coin": "a coin"},
    settings={("coin", method): settings(method) for method in ("count", "guess")},
    methods={"count": "count the heads", "guess": "guess"},
    short={"sides": "model.sides", "faces": "model.faces", "metal": "model.metal"},
    columns=(Column("test_heads", "heads", final=True),),
    headline="test_heads",
    kind="coin_kind:KIND",
    commands={"toss": "coin_kind:toss"},
)
