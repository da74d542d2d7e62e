"""`natgrad train --dry-run`: every setting as TOML, with the values that it may have.

What it prints is a config file: settings without a value are comments.
"""

import textwrap
from typing import Any

import tomli_w

from natgrad.cli import wording
from natgrad.config import RunSettings, names

_WIDTH = 80  # of a terminal's lines


def annotated(config: RunSettings) -> str:
    """A config as TOML with a comment on every line."""
    lines, section = [], ""
    for name, field in names.fields_of(type(config)).items():
        above, _, last = name.rpartition(".")
        if above != section:
            lines += ["", f"[{above}]"]
            section = above
        value = getattr(getattr(config, above) if above else config, last)
        takes = wording.allowed(name, field, (config.model.kind, config.method))
        if value is None:
            lines += _fitted(f"# {last} =", f"not set: {wording.default(field)}; takes {takes}")
        else:
            lines += _fitted(f"{last} = {toml(value)}", takes)
    return "\n".join(lines) + "\n"


def _fitted(setting: str, comment: str) -> list[str]:
    """A setting and its comment: beside it, or above it where both do not fit a terminal's line.

    >>> _fitted("seed = 0", "whole number >= 0")
    ['seed = 0  # whole number >= 0']
    """
    whole = f"{setting}  # {comment}"
    if len(whole) <= _WIDTH:
        return [whole]
    return [*textwrap.wrap(f"# {comment}", _WIDTH, subsequent_indent="#   ", break_long_words=False), setting]


def toml(value: Any) -> str:
    """A value as TOML writes it, on one line.

    >>> toml((200, 100)), toml("a b"), toml(1e-3), toml(True)
    ('[200, 100]', '"a b"', '0.001', 'true')
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").rstrip("\n")
