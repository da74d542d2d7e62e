"""Few combinations of settings that contain every pair of values: a covering array, made greedily."""

import itertools


def pairs_of(choices):
    """Every pair of values of two settings: ((name, value), (name, value))."""
    for one, other in itertools.combinations(choices, 2):
        yield from itertools.product(
            ((one, first) for first in choices[one]), ((other, second) for second in choices[other])
        )


def pairs_in(combination):
    """The pairs of values that a combination contains."""
    return set(itertools.combinations(combination.items(), 2))


def completed(pair, choices, wanted, fits):
    """A combination with this pair: of every other setting the value that fits and adds most wanted pairs."""
    found = dict(pair)
    for name in (name for name in choices if name not in found):
        gain = {value: _gain(found, (name, value), wanted) for value in choices[name]}
        for value in sorted(gain, key=gain.__getitem__, reverse=True):
            if fits(found | {name: value}):
                found[name] = value
                break
    return {name: found[name] for name in choices if name in found}


def _gain(found, added, wanted):
    """How many wanted pairs a value adds, in whichever order the pairs are named."""
    return sum((one, added) in wanted or (added, one) in wanted for one in found.items())
