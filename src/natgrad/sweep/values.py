"""Settings by their dotted names, and which of them stand for several values."""

from collections.abc import Mapping
from typing import Any

from natgrad.config import names
from natgrad.errors import InputError

Setting = dict[str, Any]


def by_dotted_name(tree: Mapping[str, Any], above: str = "") -> Setting:
    """Nested settings by their dotted names.

    >>> by_dotted_name({"method": "rws", "optimizer": {"learning_rate": [0.1, 0.2]}, "layers": [8, 4]})
    {'method': 'rws', 'optimizer.learning_rate': [0.1, 0.2], 'model.layers': [8, 4]}
    """
    found: Setting = {}
    for key, value in tree.items():
        if not above and isinstance(value, dict) and key in names.sections():
            found |= by_dotted_name(value, f"{key}.")
        else:
            found[names.short_names().get(key, key) if not above else above + key] = value
    return found


def values_of(name: str, value: Any) -> list[Any] | None:
    """The values that an entry stands for, or None if it is a single one.

    >>> values_of("seed", [1, 2]), values_of("model.layers", [8, 4]), values_of("model.layers", [[8, 4], [9]])
    ([1, 2], None, [[8, 4], [9]])
    """
    if not isinstance(value, list):
        return None
    own = names.depths().get(name, 0)
    if _depth(value) <= own:
        return None
    if not value:
        raise InputError(
            f"{name}: expected at least one value in its list, got none; give some or leave it out"
        )
    if own and not all(isinstance(inner, list) for inner in value):
        raise InputError(
            f"{name}: expected a list of lists, got {value!r}; put every alternative in brackets"
        )
    return value


def _depth(value: Any) -> int:
    return 1 + max((_depth(inner) for inner in value), default=0) if isinstance(value, list) else 0
