"""Why settings are refused, each time in one sentence: what was expected, what came, what to do."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from natgrad.config import names
from natgrad.errors import InputError, clipped, unknown
from natgrad.models import registry

EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a name",
    "tuple_type": "a list of whole numbers",
    "too_long": "two whole numbers, height and width",
    "too_short": "at least one whole number",
    "model_type": "a section of settings",
}
"""What a validation error's type means to a user."""

NEAR = 0.8  # how alike a name is that is worth telling


def explain(error: ValidationError, reader: names.Reader) -> InputError:
    """The first mistake that a validation found in the settings of a kind and a method."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return cause
    if first["type"] == "extra_forbidden":
        inner = next(iter(first["input"]), "") if isinstance(first["input"], Mapping) else ""
        return no_setting(f"{key}.{inner}".rstrip("."), reader)
    if first["type"] == "literal_error":
        known = [name.strip(" '") for name in first["ctx"]["expected"].replace(" or ", ",").split(",")]
        return _no_choice(key, str(first["input"]), known, reader)
    return InputError(f"{key}: expected {_expected(first)}, got {clipped(repr(first['input']), 80)}")


def no_setting(name: str, reader: names.Reader) -> InputError:
    """A setting that a kind and a method do not read: who does, and what is nearest here."""
    own = _own_names(reader)
    if others := names.readers(name):
        near = difflib.get_close_matches(name, own, n=1, cutoff=NEAR)
        nearest = f"; the nearest that it has is {near[0]}" if near else ""
        return InputError(f"{name} is not a setting of {_not_of(reader, others)}{nearest}")
    everywhere = {dotted for _, settings in names.all_settings() for dotted in names.fields_of(settings)}
    near = difflib.get_close_matches(name, {*everywhere, *own}, n=1, cutoff=NEAR)
    if near and near[0] not in own:
        others = names.readers(near[0])
        return InputError(
            f"unknown setting {name!r}; the nearest is {near[0]}, not one of {_not_of(reader, others)}"
        )
    message = unknown("setting", name, own)
    if "did you mean" in str(message):
        return message
    everyday = ", ".join(sorted(short for short in own if short in names.short_names(reader[0])))
    return InputError(f"unknown setting {name!r}; known are {everyday}, and all that --dry-run shows")


def no_schedule(config: Any) -> InputError:
    """A length of schedules where nothing follows one that has an end."""
    has_any = hasattr(getattr(config, "optimizer", None), "schedule")
    return InputError(
        "training.schedule_steps is the length of schedules that have an end, got it for settings that "
        f"follow none; leave it out, or give {'optimizer.schedule' if has_any else 'training.epochs'}"
    )


def no_method(kind: str, method: str) -> InputError:
    """A method that does not train a kind of model."""
    own = registry.spec_of(kind).methods_of(kind)
    if any(method == other for spec in registry.specs() for _, other in spec.settings):
        return InputError(
            f"the method {method} does not train a model of kind {kind}; its methods are {', '.join(own)}"
        )
    return unknown("method", method, own)


def _no_choice(key: str, value: str, known: list[str], reader: names.Reader) -> InputError:
    """A value that is not one of those allowed; where it is allowed elsewhere, there."""
    others = [other for other, settings in names.all_settings() if value in _choices(settings, key)]
    if not others:
        return unknown(key.removesuffix(".name"), value, known)
    kind, method = reader
    return InputError(
        f"{key}: expected {' or '.join(known)} for the method {method} of {kind}, got {value}, "
        f"which is for {_told(others, kind)}"
    )


def _choices(settings: type[BaseModel], key: str) -> list[Any]:
    field = names.fields_of(settings).get(key)
    return [] if field is None else names.choices(field.annotation)


def _own_names(reader: names.Reader) -> list[str]:
    """Dotted and short names of the settings that a kind and a method read."""
    dotted = names.fields_of(registry.spec_of(reader[0]).settings[reader])
    return [*dotted, *(short for short, name in names.short_names(reader[0]).items() if name in dotted)]


def _not_of(reader: names.Reader, others: Iterable[names.Reader]) -> str:
    kind, method = reader
    return f"the method {method} of {kind}, but of {_told(others, kind)}"


def _told(readers: Iterable[names.Reader], kind: str) -> str:
    """Kinds and methods in words: the methods of this kind if there are any, or else the other kinds."""
    if own := [method for other, method in readers if other == kind]:
        return f"the method{'s' if len(own) > 1 else ''} {', '.join(own)}"
    return "models of kind " + ", ".join(dict.fromkeys(other for other, _ in readers))


def _expected(error: Any) -> str:
    """What a value should have been, in words that follow "expected"."""
    message = error["msg"].removeprefix("Input should be ").removeprefix("Value error, ").split(", unable")[0]
    if error["type"] == "missing":
        return "two whole numbers, height and width" if isinstance(error["loc"][-1], int) else "a value"
    if message.startswith(("greater", "less")):
        return f"a number {message}"
    return EXPECTED.get(error["type"], message[0].lower() + message[1:])
