"""Copies of the model at steps 1, 2, 4, 8, ... of a training, if they are asked for.

`models/<step>.safetensors` holds the parameters of the model in use after that step, named by their places as
in a state. They are for looking back at a training; only states can be continued from.
"""

from pathlib import Path
from typing import Any

import numpy as np

from natgrad.errors import InputError
from natgrad.records import folder
from natgrad.records import state as states
from natgrad.records.notes import next_copy
from natgrad.writing import write


def keep_copy(place: Path, step: int, model: Any) -> None:
    """Keep the model of a step, if one is due."""
    from safetensors.numpy import save as serialize

    if next_copy(step - 1) != step:
        return
    copies = place / "models"
    arrays = states.arrays_by_name({"model": model}).items()
    with folder.writing(place):
        copies.mkdir(exist_ok=True)
        if copies.is_symlink():
            raise OSError("its folder models is a link to another place")
        blob = serialize({name: np.asarray(array, order="C") for name, array in arrays})
        write(copies / f"{step:010d}.safetensors", blob)


def copied_steps(place: Path) -> list[int]:
    """The steps whose models a run has kept."""
    return sorted(
        int(path.stem) for path in (place / "models").glob("*.safetensors") if path.stem.isdecimal()
    )


def copy_of(place: Path, step: int, template: Any) -> Any:
    """The model of a step in the template's structure."""
    from safetensors import SafetensorError

    kept = copied_steps(place)
    if step not in kept:
        told = f"those of steps {', '.join(map(str, kept))}" if kept else "none"
        raise InputError(
            f"expected a model of step {step} in {place}, it has kept {told}; choose one of these, or train "
            "with --evaluation.log-checkpoints true"
        )
    path = place / "models" / f"{step:010d}.safetensors"
    try:
        arrays = states.opened(path)
    except (OSError, ValueError, SafetensorError):
        raise InputError(f"{path} is damaged; train again, or load another step") from None
    return states.Stored(place, step, None, arrays).fill({"model": template})["model"]
