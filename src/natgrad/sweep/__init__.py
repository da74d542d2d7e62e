"""Sweeps: many trainings of one config, over grids or by search, chosen by validation only.

    file -> plan (settings, seeds) -> workers (a run folder per trial) -> table and figure

A trial is an ordinary run in a folder whose name is a pure function of its settings, so that a sweep
that was stopped or killed goes on when it is asked for again: finished trials are skipped, one that was
under way is resumed. Nothing here imports JAX but the workers.
"""

from natgrad.sweep.run import sweep

__all__ = ["sweep"]
