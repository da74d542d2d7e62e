"""Least squares: the whole loop, and the methods that it runs."""
