"""What an attempt says: one short sentence, or nothing where it was good."""

from natgrad.errors import InputError


def sentence(action):
    """The sentence that an action is refused with, or None; whatever else it raises is a failure."""
    try:
        action()
    except InputError as error:
        found = str(error)
    else:
        return None
    assert "\n" not in found
    assert len(found) <= 1000
    return found
