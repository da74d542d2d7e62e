"""Polynomials as people write them: x1 + 2 x2 + 3 x1 x2, x - 3x^2, 6*x + 8*x**2."""

import re

from natgrad.errors import InputError, clipped
from natgrad.relax.relaxation import DEGREE, Polynomial, check_degree, polynomial

LARGEST_COEFFICIENT = 1e30  # of coefficients: fourth powers times it are finite in float64
_TERM = re.compile(r"([+-]?)\s*(\d+\.?\d*(?:[eE][+-]?\d+)?)?((?:\s*\*?\s*x\d*(?:\s*(?:\^|\*\*)\s*\d+)?)*)\s*")
_FACTOR = re.compile(r"x(\d*)(?:\s*(?:\^|\*\*)\s*(\d+))?")


def parse(text: str) -> Polynomial:
    """The polynomial of an expression; `x` alone is x1.

    >>> parse("x1 + 2 x2 + 3 x1 x2").terms
    ((0,), (1,), (0, 1))
    >>> parse("x - 3x^2").coefficients
    (1.0, -3.0)
    """
    terms: dict[tuple[int, ...], float] = {}
    place, rest = 0, text.strip()
    while place < len(rest):
        found = _TERM.match(rest, place)
        if found is None or found.end() == place or not (found[2] or found[3].strip()):
            raise _wrong(text)
        if place > 0 and not found[1]:
            raise _wrong(text)
        term: list[int] = []
        for index, power in _FACTOR.findall(found[3]):
            if index == "0" or len(index) > 6:
                raise _wrong(text)
            degree = int(power or 1) if len(power) < 4 else DEGREE + 1
            check_degree(len(term) + degree)
            term += [int(index or 1) - 1] * degree
        key = tuple(sorted(term))
        value = float(found[2] or 1) * (-1 if found[1] == "-" else 1)
        if abs(value) > LARGEST_COEFFICIENT:
            raise InputError(
                f"coefficients go up to {LARGEST_COEFFICIENT:g}, got {clipped(found[2], 20)}; rescale them"
            )
        terms[key] = terms.get(key, 0.0) + value
        place = found.end()
    if not terms:
        raise _wrong(text)
    return polynomial(terms)


def _wrong(text: str) -> InputError:
    return InputError(
        f"expected a polynomial of x1, x2, ... such as 'x1 + 2 x2 + 3 x1 x2', got {text!r}; write it so"
    )
