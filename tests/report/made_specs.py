"""Made-up kinds of model: what a page is told of a kind, without any kind of natgrad's own."""

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from natgrad.core import Kind, Panel, Sheet
from natgrad.models.registry import Column, Spec


class Data(BaseModel):
    name: str = "somewhere"


class Model(BaseModel):
    kind: Literal["toy"] = "toy"
    widths: list[int] = [3, 2]


class Training(BaseModel):
    epochs: int = 3


class Evaluation(BaseModel):
    patience: int = 0


class Toy(BaseModel):
    """The settings of a toy: no objective, no metric, no optimizer."""

    method: Literal["drift", "jump"] = "drift"
    seed: int = 0
    data: Data = Data()
    model: Model = Model()
    training: Training = Training()
    evaluation: Evaluation = Evaluation()


def panels(run: Any, dataset: Any) -> dict[str, Panel]:
    del run, dataset
    return {"Tracks": Panel("Where the toy went.", {"there and back": Sheet(np.eye(2), (1, 2))})}


def unused(*given: Any) -> Any:
    raise AssertionError("a page trains nothing")


TOY_KIND = Kind(fresh=unused, problem=unused, trained=unused, panels=panels)
TOY = Spec(
    kinds={"toy": "a made-up model"},
    settings={("toy", "drift"): Toy, ("toy", "jump"): Toy},
    methods={"drift": "slow", "jump": "fast"},
    columns=(
        Column("valid_hits", "validation hits", higher=True, chart="Hits"),
        Column("test_hits", "hits", unit="per shot", higher=True, chart="Hits", percent=True, final=True),
    ),
    criterion="valid_hits",
    headline="test_hits",
    kind="made_specs:TOY_KIND",
)
MACHINE = Spec(
    kinds={},
    settings={},
    methods={},
    columns=(
        Column(
            "test_ll", "test log-likelihood", unit="nats per row", higher=True, error="test_ll_se", final=True
        ),
        Column("kl", "KL from the true distribution", unit="nats", higher=False, log=True, final=True),
        Column("effective_samples", "effective samples", note="of the importance weights"),
    ),
    criterion="valid_loss",
    headline="test_ll",
    kind="made_specs:TOY_KIND",
)
"""Stands in for the default kind where that has no spec yet."""
