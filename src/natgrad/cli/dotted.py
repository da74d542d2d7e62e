"""Dotted flags: `--objective.baseline false` sets that key of the config, whatever it is."""

import re
import tomllib
from collections.abc import Sequence
from typing import Any

from natgrad.errors import InputError

_FLAG = re.compile(r"--([a-z_]+(?:\.[a-z_-]+)+)(?:=(.*))?", re.DOTALL)


def take_dotted(tokens: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Separate dotted flags, with their values, from the other arguments.

    >>> take_dotted(["train", "--optimizer.momentum", "0.5", "--json", "--model.bias=-1"])
    ({'optimizer.momentum': 0.5, 'model.bias': -1}, ['train', '--json'])
    """
    dotted: dict[str, Any] = {}
    rest: list[str] = []
    remaining = iter(tokens)
    for token in remaining:
        match = _FLAG.fullmatch(token)
        if match is None:
            rest.append(token)
            continue
        text = match[2] if match[2] is not None else next(remaining, None)
        if text is None:
            raise InputError(f"{token} needs a value; write {token} VALUE")
        dotted[match[1].replace("-", "_")] = literal(text)
    return dotted, rest


def whole(kind: Any, tokens: Sequence[Any]) -> int:
    """A whole number from a flag's text: 1.5 is a mistake, not a 2."""
    del kind
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected a whole number, got {text!r}") from None


def literal(text: str) -> Any:
    """A value as TOML reads it, a comma-separated list of such values, or the text itself.

    >>> [literal("0.1"), literal("true"), literal("200,100"), literal("cosine")]
    [0.1, True, [200, 100], 'cosine']
    """
    for candidate in (text, f"[{text}]" if "," in text else text):
        try:
            return tomllib.loads(f"value = {candidate}")["value"]
        except tomllib.TOMLDecodeError:
            continue
    return text
