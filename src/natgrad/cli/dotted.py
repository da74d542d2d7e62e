"""Settings as flags: `--batch-size 8` by a short name, `--objective.baseline false` by a dotted one.

Flags of settings are taken out before the other arguments are parsed. Their texts become values by the type
of the setting, and are validated where all settings are.
"""

import re
import tomllib
from collections.abc import Container, Mapping, Sequence
from typing import Any

import cyclopts
from pydantic.fields import FieldInfo

from natgrad import config
from natgrad.config import names
from natgrad.errors import InputError, clipped
from natgrad.models import registry

_WIDEST = 2**32  # of numbers on the command line: seeds have so many values
_FLAG = re.compile(r"--([a-z_-]+(?:\.[a-z_-]+)*)(?:=(.*))?", re.DOTALL)


def take_settings(tokens: Sequence[str], short: Container[str] = ()) -> tuple[dict[str, str], list[str]]:
    """Separate flags of settings, with their texts, from the other arguments.

    >>> take_settings(["train", "--optimizer.momentum", "0.5", "--json", "--batch-size=8"], {"batch_size"})
    ({'optimizer.momentum': '0.5', 'batch_size': '8'}, ['train', '--json'])
    """
    taken: dict[str, str] = {}
    rest: list[str] = []
    remaining = iter(tokens)
    for token in remaining:
        match = _FLAG.fullmatch(token)
        name = match[1].replace("-", "_") if match else ""
        if match is None or not ("." in name or name in short):
            rest.append(token)
            continue
        text = match[2] if match[2] is not None else next(remaining, None)
        if text is None or (match[2] is None and text.startswith("--")):
            raise InputError(f"{token} needs a value; write {token} VALUE")
        taken[name] = text
    return taken, rest


def take_named(tokens: Sequence[str], own: Container[str]) -> tuple[dict[str, str], list[str]]:
    """`take_settings` by the short names of the kind that is asked for.

    Where that leaves a flag that is not one of the command's own, by those of all kinds: it may be of the
    kind that a file asks for, or will be refused under its name.
    """
    asked, _ = take_settings(tokens, {"model"})
    kind = asked.get("model", asked.get("model.kind", registry.DEFAULT))
    taken, rest = take_settings(tokens, names.short_names(kind))
    if all(token in own for token in rest if token.startswith("--")):
        return taken, rest
    return take_settings(tokens, names.short_names())


def values(texts: Mapping[str, str], tree: Mapping[str, Any]) -> dict[str, Any]:
    """The values of settings from their texts, for the kind that they or a file's settings ask for."""
    kind = texts.get("model", texts.get("model.kind", config.kind_of(tree)))
    short = names.short_names(kind)
    dotted = {name: short.get(name, name) for name in texts}
    fields = names.fields_named(dotted.values(), kind, texts.get("method", tree.get("method")))
    return {name: value_of(text, fields.get(dotted[name])) for name, text in texts.items()}


def value_of(text: str, field: FieldInfo | None) -> Any:
    """A setting's value from its text: text stays text, a list may have one element."""
    if field is not None and (field.annotation is str or names.choices(field.annotation)):
        return text
    value = literal(text)
    single = field is not None and names.depth(field.annotation) and not isinstance(value, list | str)
    return [value] if single else value


def literal(text: str) -> Any:
    """A value as TOML reads it, a comma-separated list of such values, or the text itself.

    >>> [literal("0.1"), literal("true"), literal("200,100"), literal("cosine")]
    [0.1, True, [200, 100], 'cosine']
    """
    for candidate in (text, f"[{text}]" if "," in text else text):
        try:
            found = tomllib.loads(f"value = {candidate}")
        except (ValueError, RecursionError):  # not TOML, too deep, or a number of thousands of digits
            continue
        if found.keys() == {"value"}:  # and no further line
            return found["value"]
    return text


def strict(kind: Any, tokens: Sequence[Any]) -> Any:
    """What cyclopts makes of a flag's text, but a whole number must be one: 1.5 is a mistake, not a 2."""
    if kind not in (int, int | None):
        return cyclopts.convert(kind, tokens)
    text = clipped(tokens[0].value, 80)
    try:
        found = int(tokens[0].value)
    except ValueError:
        raise ValueError(f"expected a whole number, got {text!r}") from None
    if abs(found) >= _WIDEST:
        raise ValueError(f"expected a whole number between -{_WIDEST} and {_WIDEST}, got {text}")
    return found
