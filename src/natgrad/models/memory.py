"""Whether a model fits the memory of this computer, known before anything is compiled."""

import os

from natgrad.errors import InputError


def check_weights(number: int, *, bytes_each: int = 4) -> None:
    """Refuse a model with so many weights that they alone fill the memory."""
    needed, memory = bytes_each * number, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise InputError(
            f"the weights of this machine take {needed / 2**30:.3g} GB, this computer has "
            f"{memory / 2**30:.3g} GB; make --layers smaller"
        )
