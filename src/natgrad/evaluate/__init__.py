"""Likelihoods and pictures of a model."""
