"""What types alone let through: true and false for numbers, and numbers that no computation holds."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from natgrad.config import names
from natgrad.errors import LARGEST_COUNT, InputError

LARGEST_NUMBER, SMALLEST_NUMBER = (
    1e30,
    1e-30,
)  # single precision holds them
_SEEDS = ("seed", "data.split_seed")  # have limits of their own


def check_booleans(tree: Mapping[str, Any], settings: type[BaseModel]) -> None:
    """Refuse true and false where a setting is a number: they would be taken as 1 and 0."""
    for name, field in names.fields_of(settings).items():
        found = [value for value in _parts(_at(tree, name)) if isinstance(value, bool)]
        if found and not _takes_booleans(field.annotation):
            given = str(found[0]).lower()
            raise InputError(f"{name} is not true or false, got {given}; --dry-run shows what it takes")


def check_sizes(config: BaseModel) -> None:
    """Refuse numbers that are too large, or too near to zero."""
    tree = config.model_dump()
    for name in names.fields_of(type(config)):
        for value in _parts(_at(tree, name)):
            if isinstance(value, int) and abs(value) > LARGEST_COUNT and name not in _SEEDS:
                raise InputError(f"{name}: expected a whole number up to {LARGEST_COUNT}, got {value}")
            if isinstance(value, float) and value and not SMALLEST_NUMBER <= abs(value) <= LARGEST_NUMBER:
                limits = f"{SMALLEST_NUMBER:g} and {LARGEST_NUMBER:g}"
                raise InputError(f"{name}: expected a number between {limits}, got {value:g}")


def _takes_booleans(annotation: Any) -> bool:
    return annotation is bool or any(map(_takes_booleans, get_args(annotation)))


def _at(tree: Any, dotted: str) -> Any:
    """What stands at a place of nested settings; None where nothing does."""
    for part in dotted.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def _parts(value: Any) -> Iterator[Any]:
    """A value, or all that are in it if it is a list, however deep."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list | tuple):
            waiting += found
        else:
            yield found
