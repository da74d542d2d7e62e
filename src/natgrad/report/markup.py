"""HTML by functions that escape: whatever is not markup already is text.

tag("td", name, class_="run")     name may hold anything: it stays text
"""

from collections.abc import Iterable
from html import escape
from typing import Any

VOID = {"img", "input", "meta", "link", "br"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """An element. `class_` and `data_x` stand for `class` and `data-x`; True is a bare attribute.

    >>> tag("p", "1 < 2 & ", tag("b", "so"), class_='a"b')
    '<p class="a&quot;b">1 &lt; 2 &amp; <b>so</b></p>'
    """
    inside = "".join(f" {_attribute(key, value)}" for key, value in attributes.items() if _given(value))
    opening = f"<{name}{inside}>"
    return Markup(opening if name in VOID else f"{opening}{join_markup(*children)}</{name}>")


def join_markup(*children: Child) -> Markup:
    """Children one after the other: markup as it is, everything else as text, None as nothing."""
    return Markup("".join(_text(child) for child in children))


def _text(child: Any) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(child)
    return "".join(map(_text, child)) if isinstance(child, Iterable) else escape(str(child))


def _attribute(key: str, value: Any) -> str:
    name = key.rstrip("_").replace("_", "-")
    return name if value is True else f'{name}="{escape(str(value))}"'


def _given(value: Any) -> bool:
    return value is not None and value is not False
