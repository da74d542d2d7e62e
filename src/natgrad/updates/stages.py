"""What a method carries from one stage of a training into the next, such as to another number of samples.

Counts of steps continue, and so do schedules, averages, an optimizer's memory and an adapted damping. A
metric is measured again at once, since what is kept of it may have other shapes; what an objective carries
begins again.
"""

from typing import Any

import jax

from natgrad.core import State
from natgrad.updates.kept import Kept


def carried_over(fresh: Any, before: Any) -> Any:
    """The first state of a stage, `fresh`, with what lasts of the last state of the stage before it."""
    return jax.tree.map(_lasting, fresh, before, is_leaf=lambda node: isinstance(node, State | Kept))


def _lasting(fresh: Any, before: Any) -> Any:
    if isinstance(fresh, Kept):
        lasting = {name: getattr(before, name) for name in ("steps", "level", "gradient", "direction")}
        metric = before.metric if _alike(fresh.metric, before.metric) else fresh.metric
        return fresh._replace(metric=metric, **lasting)
    if isinstance(fresh, State):
        parts = {name: carried_over(getattr(fresh, name), getattr(before, name)) for name in _BEGUN}
        return before._replace(**parts)
    return fresh


_BEGUN = ("objective", "direction")


def _alike(one: Any, other: Any) -> bool:
    """Whether two trees have the same shapes."""
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree) for tree in (one, other)]
    return bool(shapes[0] == shapes[1])
