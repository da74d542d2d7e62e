"""Averages over steps that natural methods may take."""

from natgrad.config.sections import Section, setting


class AveragedGradient(Section):
    """A gradient that is averaged before it is measured."""

    gradient_decay: float = setting(
        0.0, "The decay of an average of gradients, taken before the solve (0: none).", ge=0, lt=1
    )
