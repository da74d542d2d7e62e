"""Reproductions: the tables and figures of papers, each a TOML file and nothing else.

    file (a sweep, and what the paper claims) -> sweep -> record -> claimed beside obtained, with a verdict

The files are in `papers/`, installed with the package. Trials are those of `natgrad.sweep`: resumed after a
kill, recorded, never trained twice; a call with more epochs or seeds adds to the record.
"""
