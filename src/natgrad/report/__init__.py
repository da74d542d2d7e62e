"""Runs to look at: read back from their folders, compared, and shown on one page."""
