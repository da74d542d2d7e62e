"""Data: from a name or a file to three splits of bytes, or of real numbers.

    name or path -> files (found, checked, downloaded) -> formats -> splits -> `Dataset`

Nothing here imports jax; a value divided by `levels` is the mean of one visible unit.
"""

from natgrad.data.dataset import Dataset, PatternDistribution, load, load_settings, names

__all__ = ["Dataset", "PatternDistribution", "load", "load_settings", "names"]
