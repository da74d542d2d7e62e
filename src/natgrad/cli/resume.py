"""`natgrad resume`: continue a training, as if it had never stopped."""

from pathlib import Path

from natgrad.cli import commands
from natgrad.cli.commands import ALONE, Devices, Json, Silent, Tensorboard, Verbose


def resume(
    run: Path,
    *,
    epochs: int | None = None,
    quiet: Silent = False,
    verbose: Verbose = False,
    tensorboard: Tensorboard = False,
    devices: Devices = ALONE,
    json: Json = False,
) -> None:
    """Continue a training that was stopped or killed; the results are the same as without the stop.

    Parameters
    ----------
    run
        A run folder.
    epochs
        The new total, for a longer training; schedules keep their length.
    """
    from natgrad.records.folder import open_run
    from natgrad.report.reading import FINISHED, read_run
    from natgrad.training.run import resume_run

    quiet, json = commands.join_peers(devices, quiet=quiet, json=json)
    settings = open_run(run)[1]
    if epochs is not None:
        training = settings.training.model_copy(update={"epochs": epochs})
        settings = settings.model_copy(update={"training": training})
    ended = read_run(run).state == FINISHED and epochs in (None, open_run(run)[1].training.epochs)
    with commands.watched(settings, run if tensorboard else None, quiet=quiet or ended) as watch:
        found = resume_run(run, epochs=epochs, watch=watch, final=True, mesh=devices.mesh)
    commands.print_summary(found, json=json, quiet=quiet or ended, verbose=verbose and not ended)
