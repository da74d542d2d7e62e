"""Settings of former formats, in today's words: a run of an older natgrad is read as it was meant.

2: had the end of a schedule also where there is none.   3: `data.labelled`, and `data.binarize = "grey"`.
"""

from typing import Any

from natgrad.config.sections import ENDLESS, FORMAT

READABLE = 2  # the oldest format that is read; 1, of natgrad 0.1.0, had other names throughout
_DATA = {"labelled": "labeled"}
_BINARIZE = {"grey": "gray"}


def updated(tree: dict[str, Any], number: int) -> dict[str, Any]:
    """Nested settings of a format that is read, in the present one."""
    if number == READABLE:
        tree = _without_ends(tree)
    return _respelled(tree) | {"format": FORMAT}


def _without_ends(tree: dict[str, Any]) -> dict[str, Any]:
    """Settings without the end of a schedule that has none, which had no effect."""
    section = tree.get("optimizer")
    if isinstance(section, dict) and section.get("schedule", ENDLESS[0]) in ENDLESS:
        tree = tree | {"optimizer": {name: section[name] for name in section if name != "final_fraction"}}
    return tree


def _respelled(tree: dict[str, Any]) -> dict[str, Any]:
    """Settings in American spelling."""
    section = tree.get("data")
    if not isinstance(section, dict):
        return tree
    data = {_DATA.get(name, name): value for name, value in section.items()}
    if isinstance(chosen := data.get("binarize"), str):
        data["binarize"] = _BINARIZE.get(chosen, chosen)
    return tree | {"data": data}
