"""Helmholtz machines: two sigmoid belief networks over the same units."""
