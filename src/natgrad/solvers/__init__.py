"""Solve (damping I + F) x = g, for all units of a layer at once."""
