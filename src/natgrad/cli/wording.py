"""Settings in words: what values they take, their defaults, and which kinds and methods read them."""

from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from natgrad.config import names
from natgrad.config.names import Reader
from natgrad.models import registry

SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
NUMBERS = {int: "whole number", float: "number"}


class Row(NamedTuple):
    """A setting of one meaning, and its default text for all that read it."""

    name: str
    about: str
    allowed: str
    defaults: dict[Reader, str]


def setting_rows(settings: Iterable[tuple[Reader, type[BaseModel]]]) -> list[Row]:
    """The settings of config classes, those of the same meaning together."""
    found: dict[tuple[str, str, str], Row] = {}
    for reader, chosen in settings:
        for name, field in names.fields_of(chosen).items():
            key = (name, field.description or "", allowed(name, field, reader))
            found.setdefault(key, Row(*key, {})).defaults[reader] = default(field)
    return list(found.values())


def allowed(name: str, field: FieldInfo, reader: Reader | None = None) -> str:
    """The values that a setting may have; for the kind and the method those that there are."""
    if name == "model.kind":
        return " | ".join(registry.kind_names())
    if name == "method" and reader is not None:
        return " | ".join(registry.spec_of(reader[0]).methods_of(reader[0]))
    return _allowed(field.annotation, field.metadata)


def default(field: FieldInfo) -> str:
    """The default of a setting as its flag takes it, or what leaving it out means.

    >>> default(names.fields_named(["training.schedule_steps"], registry.DEFAULT)["training.schedule_steps"])
    'the whole training'
    """
    extra = field.json_schema_extra
    if field.default is None:
        return str(extra.get("unset", "none")) if isinstance(extra, Mapping) else "none"
    return flag_text(field.default)


def flag_text(value: Any) -> str:
    """A value as a flag takes it.

    >>> flag_text((200, 100, 10)), flag_text(False), flag_text(0.05), flag_text(())
    ('200,100,10', 'false', '0.05', '[]')
    """
    if isinstance(value, list | tuple):
        return ",".join(map(flag_text, value)) if value else "[]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def defaults_text(defaults: Mapping[Reader, str]) -> str:
    """Defaults in one line: one value, or several with those that have them; the usual one comes first.

    >>> defaults_text({("a", "x"): "1", ("b", "x"): "2", ("c", "x"): "1"})
    '1, but 2 (b)'
    >>> defaults_text({("a", "x"): "1", ("b", "x"): "2"})
    '1 (a), 2 (b)'
    """
    values = list(dict.fromkeys(defaults.values()))
    if len(values) == 1:
        return values[0]
    having = {value: [reader for reader in defaults if defaults[reader] == value] for value in values}
    usual = next((value for value in values if 3 * len(having[value]) >= 2 * len(defaults)), None)
    others = [
        f"{value} ({readers_text(having[value], list(defaults))})" for value in values if value != usual
    ]
    return ", but ".join(filter(None, (usual, ", ".join(others))))


def readers_text(readers: list[Reader], among: list[Reader]) -> str:
    """Some of the readers in words: by kinds or by methods alone where that says it, or by both.

    >>> among = [(kind, method) for kind in "abc" for method in "xyz"]
    >>> readers_text([("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), *among[6:]], among)
    'a, b: x, y; c'
    """
    for part in (0, 1):
        chosen = list(dict.fromkeys(reader[part] for reader in readers))
        if [reader for reader in among if reader[part] in chosen] == readers:
            return ", ".join(chosen)
    kinds: dict[str, list[str]] = {}  # by what is said of their methods
    for kind in dict.fromkeys(kind for kind, _ in readers):
        methods = [method for each, method in readers if each == kind]
        whole = methods == [method for each, method in among if each == kind]
        kinds.setdefault("" if whole else f": {', '.join(methods)}", []).append(kind)
    return "; ".join(", ".join(named) + methods for methods, named in kinds.items())


def _allowed(annotation: Any, limits: Iterable[Any] = ()) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _allowed(parts[0], [*parts[1:], *limits])
    if origin is Literal:
        return " | ".join(map(str, parts))
    if origin in (Union, UnionType):
        return " or ".join(_allowed(part, limits) for part in parts if part is not NoneType)
    if origin is tuple:
        return _list(parts)
    if annotation is bool:
        return "true | false"
    if annotation is str:
        return "text"
    bounds = [f"{SIGNS[key]} {bound}" for limit in limits for key, bound in _bounds(limit)]
    return f"{NUMBERS.get(annotation, str(annotation))} {', '.join(bounds)}".rstrip()


def _list(parts: tuple[Any, ...]) -> str:
    """A list of any length, or so many values."""
    if get_origin(parts[0]) is tuple:
        return f"list of ({_allowed(parts[0])})"
    inner = _allowed(parts[0]).replace("number", "numbers", 1)
    return f"list of {inner}" if parts[-1] is Ellipsis else f"{len(parts)} {inner}"


def _bounds(limit: Any) -> list[tuple[str, Any]]:
    return [(key, getattr(limit, key)) for key in SIGNS if getattr(limit, key, None) is not None]
