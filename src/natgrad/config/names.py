"""Settings by name: which there are, what they are called, and which kinds and methods read them.

A dotted name (`optimizer.learning_rate`) is a setting's place in the TOML file; everyday settings have a
short name as well. Nothing here is fixed when it is imported: kinds may be added at any time.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from natgrad.models import registry

Reader = tuple[str, str]  # a kind and one of its methods

COMMON = {
    "model": "model.kind",
    "method": "method",
    "data": "data.name",
    "image_shape": "data.image_shape",
    "epochs": "training.epochs",
    "batch_size": "training.batch_size",
    "learning_rate": "optimizer.learning_rate",
    "optimizer": "optimizer.name",
    "device": "training.device",
    "seed": "seed",
}
"""Short names that mean the same for every kind."""

LAST = ("training", "evaluation")  # sections that are shown after a kind's own


def fields_of(settings: type[BaseModel]) -> dict[str, FieldInfo]:
    """The settings of a config class by their dotted names, in the order in which they are shown."""
    return dict(_fields(settings))


@cache
def _fields(settings: type[BaseModel]) -> dict[str, FieldInfo]:
    """As `fields_of`, once for every class: a sweep asks a thousand times."""
    found: dict[str, FieldInfo] = {}
    for name in sorted(settings.model_fields, key=LAST.__contains__):
        field = settings.model_fields[name]
        if is_section(field.annotation):
            inner = field.annotation.model_fields  # type: ignore[union-attr]
            found |= {f"{name}.{key}": value for key, value in inner.items()}
        else:
            found[name] = field
    return found


def fields_named(wanted: Iterable[str], kind: str, method: str | None = None) -> dict[str, FieldInfo]:
    """The settings of those names that a method reads; else another of the kind, its first one first."""
    found: dict[str, FieldInfo] = {}
    spec, left = registry.spec_of(kind), set(wanted)
    for other in sorted(spec.methods_of(kind), key=lambda other: other != method):
        if left:
            own = fields_of(spec.settings[kind, other])
            found |= {name: own[name] for name in left & own.keys()}
            left -= own.keys()
    return found


def is_section(annotation: Any) -> bool:
    """Whether a field holds settings of its own."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def all_settings() -> Iterator[tuple[Reader, type[BaseModel]]]:
    """The config class of every kind and method."""
    for spec in registry.specs():
        yield from spec.settings.items()


def readers(name: str) -> list[Reader]:
    """The kinds and methods that read a setting, or any setting of a section.

    >>> [method for kind, method in readers("objective.baseline")]
    ['nrws', 'rws', 'bihm', 'dnrws', 'nbihm']
    """
    return [
        reader
        for reader, settings in all_settings()
        if any(own == name or own.startswith(f"{name}.") for own in fields_of(settings))
    ]


def short_names(kind: str | None = None) -> dict[str, str]:
    """Dotted names by short ones: those of a kind, or of all kinds together."""
    if kind is not None:
        return {**registry.spec_of(kind).short, **COMMON}
    return {short: dotted for spec in registry.specs() for short, dotted in spec.short.items()} | COMMON


def sections() -> set[str]:
    """The names of the sections that any kind has."""
    return {
        name.split(".")[0] for _, settings in all_settings() for name in fields_of(settings) if "." in name
    }


def depths() -> dict[str, int]:
    """The settings that are lists themselves, and how many lists are inside each other.

    >>> depths()["model.layers"]
    1
    """
    return {name: deep for _, settings in all_settings() for name, deep in _depths(settings).items()}


@cache
def _depths(settings: type[BaseModel]) -> dict[str, int]:
    every = _fields(settings).items()
    return {name: deep for name, field in every if (deep := depth(field.annotation))}


def depth(annotation: Any) -> int:
    """How many lists are inside each other in a setting of this type."""
    inner = max((depth(part) for part in get_args(annotation)), default=0)
    return inner + (get_origin(annotation) is tuple)


def choices(annotation: Any) -> list[Any]:
    """The values that a setting of this type may have, where they are listed.

    >>> choices(Literal["round", "resample"] | None)
    ['round', 'resample']
    """
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    return [choice for part in parts for choice in choices(part)]
