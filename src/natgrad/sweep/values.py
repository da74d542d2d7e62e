"""Settings by their dotted names, and which of them stand for several values."""

from collections.abc import Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from natgrad import config
from natgrad.errors import InputError

Setting = dict[str, Any]


def flat(tree: Mapping[str, Any], above: str = "") -> Setting:
    """Nested settings by their dotted names.

    >>> flat({"method": "rws", "optimizer": {"learning_rate": [0.1, 0.2]}, "layers": [8, 4]})
    {'method': 'rws', 'optimizer.learning_rate': [0.1, 0.2], 'model.layers': [8, 4]}
    """
    found: Setting = {}
    for key, value in tree.items():
        if not above and isinstance(value, dict) and key in SECTIONS:
            found |= flat(value, f"{key}.")
        else:
            found[config.SHORT.get(key, key) if not above else above + key] = value
    return found


def values_of(name: str, value: Any) -> list[Any] | None:
    """The values that an entry stands for, or None if it is a single one.

    >>> values_of("seed", [1, 2]), values_of("model.layers", [8, 4]), values_of("model.layers", [[8, 4], [9]])
    ([1, 2], None, [[8, 4], [9]])
    """
    if not isinstance(value, list) or _depth(value) <= DEPTHS.get(name, 0):
        return None
    if not value:
        raise InputError(
            f"{name}: expected at least one value in its list, got none; give some or leave it out"
        )
    if DEPTHS.get(name, 0) and not all(isinstance(inner, list) for inner in value):
        raise InputError(
            f"{name}: expected a list of lists, got {value!r}; put every alternative in brackets"
        )
    return value


def _depth(value: Any) -> int:
    return 1 + max((_depth(inner) for inner in value), default=0) if isinstance(value, list) else 0


def _depth_of(kind: Any) -> int:
    """How many lists are inside each other in a setting of this type."""
    inner = max((_depth_of(part) for part in get_args(kind)), default=0)
    return inner + (get_origin(kind) is tuple)


SECTIONS = [
    name
    for name, field in config.Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
]

DEPTHS = {
    f"{name}.{inner}": depth
    for name in SECTIONS
    for inner, field in config.Config.model_fields[name].annotation.model_fields.items()  # type: ignore[union-attr]
    if (depth := _depth_of(field.annotation))
}
"""The settings that are lists themselves, and how deep."""
