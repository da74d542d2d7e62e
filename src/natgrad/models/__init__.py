"""Kinds of model, a folder each; `registry` finds them."""
