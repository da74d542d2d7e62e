"""Black-box minimization by natural gradient over a family of distributions: ask, evaluate, tell.

`Search` is the ask/tell object; `natgrad.minimize` runs one to its end.
"""

from typing import Any

__all__ = ["Plan", "Search"]


def __getattr__(name: str) -> Any:
    if name == "Search":
        from natgrad.relax.search import Search

        return Search
    if name == "Plan":
        from natgrad.relax.plan import Plan

        return Plan
    raise AttributeError(f"module 'natgrad.relax' has no attribute {name!r}")
