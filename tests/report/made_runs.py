"""Run folders made by hand: everything a page shows, without a training."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from natgrad import config
from natgrad.core import Sheet
from natgrad.records import gallery

LAYERS = ("left.0", "left.1", "right.0", "right.1")
HOSTILE = '"><img src=x onerror=alert(1)>'


def make_run(
    place: Path,
    *,
    epochs: int = 3,
    rows: list[Any] | None = None,
    pictures: bool = True,
    chosen: Any = None,
    **settings: Any,
) -> Path:
    """A run of the settings given, or of a whole config, which may be of any kind of model."""
    place.mkdir(parents=True)
    chosen = chosen or config.resolve({"layers": (6, 3), "epochs": epochs} | settings)
    (place / "config.toml").write_text(config.dump(chosen), "utf-8")
    facts = {"versions": {"natgrad": "0.1.0"}, "cores": 2, "x64": False, "solvers": None}
    (place / "environment.json").write_text(json.dumps(facts), "utf-8")
    rows = (
        [row(epoch, natural=chosen.method[0] in "nd") for epoch in range(epochs + 1)]
        if rows is None
        else rows
    )
    (place / "trace.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows), "utf-8")
    (place / "state").mkdir()
    notes = {"shape": {"visible": 9}, "summary": {}, "best": {"epoch": 0} if rows else {}}
    (place / "state" / "0000000000.json").write_text(json.dumps({"format": 1, "notes": notes}), "utf-8")
    if pictures:
        keep(place, [each["step"] for each in rows if isinstance(each, dict) and "step" in each])
    return place


def row(epoch: int, *, natural: bool) -> dict[str, Any]:
    """A row of the trace such as a training writes."""
    found: dict[str, Any] = {"epoch": epoch, "step": 10 * epoch, "seconds": 0.5 * epoch}
    loss = 4.0 + 3.0 / (epoch + 1)
    found |= {"train_loss": loss - 0.1 if epoch else None, "valid_loss": loss, "valid_ll": -loss}
    found |= {"test_ll": -loss, "test_ll_se": 0.2, "mc_se": 0.01}
    if epoch:
        found |= {"steps_refused": 0, "effective_samples": 4.0, "gradient_norm": 2.0 / epoch}
    if epoch and natural:
        found |= {"step_kl": 0.01 / epoch, "solver_iterations": 3.0}
        found |= {
            f"{layer}.{what}": 0.1 * epoch
            for layer in LAYERS
            for what in ("gradient_norm", "residual", "cosine")
        }
    return found


def keep(place: Path, steps: list[int]) -> None:
    """Pictures that grow lighter: images and, beside them, a table."""
    for step in steps:
        rows = np.full((4, 9), min(step, 255) / 255)
        gallery.keep(place, step, {"means": Sheet(rows, (3, 3)), "units": Sheet(rows[:, :5])})


def chromium() -> tuple[str, str] | None:
    """The browser and its driver, where this machine has both."""
    from shutil import which

    browser = os.environ.get("CHROMIUM") or which("chromium") or which("chromium-browser")
    driver = os.environ.get("CHROMEDRIVER") or which("chromedriver")
    return (browser, driver) if browser and driver else None
