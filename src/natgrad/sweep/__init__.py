"""Sweeps: many trainings of one config, over grids or by search, chosen by validation only.

    file -> plan (candidates) -> workers (a run folder per trial) -> record -> choice -> table and figure

A trial is an ordinary run in a folder whose name is a pure function of its settings, so that a sweep that
was stopped or killed continues when it is asked for again: recorded trials are skipped, one that was under
way is resumed. Tables are made from the record alone. Nothing here imports JAX but the workers.
"""

from natgrad.sweep.run import sweep

__all__ = ["sweep"]
