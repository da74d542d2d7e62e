"""The model families: frozen pytrees and pure functions."""
