"""Exponential families with all their charts: the statistical models of stochastic relaxation."""
