"""`natgrad resume`: go on with a training, as if it had never stopped."""

from pathlib import Path

from natgrad.cli import commands
from natgrad.cli.commands import Json, Quiet, Tensorboard
from natgrad.cli.flags import Whole


def resume(
    run: Path,
    *,
    epochs: Whole = None,
    quiet: Quiet = False,
    tensorboard: Tensorboard = False,
    json: Json = False,
) -> None:
    """Go on with a training that was stopped or killed, bit for bit as if it had not been.

    Parameters
    ----------
    run
        A run folder.
    epochs
        The new total, for a longer training; schedules keep their length.
    """
    from natgrad.records.folder import open_run
    from natgrad.training.run import resume_run

    total = epochs if epochs is not None else open_run(run)[1].training.epochs
    with commands.watched(total, run if tensorboard else None, quiet=quiet) as watch:
        found = resume_run(run, epochs=epochs, watch=watch, final=True)
    commands._print(found.summary, json=json, title=f"trained {found.folder}")
