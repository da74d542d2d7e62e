"""Small sets whose distribution is known, so that a model's distance from the truth is too.

`3by3` holds the row and column patterns of a 3x3 image (K. Kirby, "A tutorial on Helmholtz
machines", 2006): the six non-constant column patterns at 2/18 each, the six row patterns at 1/18.
The best possible loss is the entropy of the distribution, 2.42827 nats.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from natgrad.data.splits import Parts, generator, seeded

_COLUMNS = ("001001001", "010010010", "100100100", "101101101", "110110110", "011011011")
_ROWS = ("000111111", "000000111", "000111000", "111111000", "111000000", "111000111")
COPIES = 1000
TRAIN, VALID = 15_000, 3_000


@dataclass(frozen=True, eq=False)
class PatternDistribution:
    """A distribution given by its table: patterns in {0,1} [state, visible], probabilities [state]."""

    patterns: NDArray[np.uint8]
    probabilities: NDArray[np.float64]

    @property
    def entropy(self) -> float:
        """- sum p log p in nats: the least loss any model of this distribution can reach."""
        positive = self.probabilities[self.probabilities > 0]
        return float(-(positive * np.log(positive)).sum())


def three_by_three_distribution() -> PatternDistribution:
    """The distribution of `3by3`.

    >>> round(three_by_three_distribution().entropy, 5)
    2.42827
    """
    patterns = np.array([[int(bit) for bit in text] for text in _COLUMNS + _ROWS], np.uint8)
    return PatternDistribution(patterns, np.repeat([2 / 18, 1 / 18], [len(_COLUMNS), len(_ROWS)]))


def draw_three_by_three(seed: int) -> Parts:
    """1,000 copies of the 18 weighted patterns, shuffled: 15,000 train, 3,000 valid, the same for test.

    Test repeats valid as in the published runs; for an exact judgment use the distribution.
    """
    distribution = three_by_three_distribution()
    copies = np.rint(distribution.probabilities * 18 * COPIES).astype(int)
    rows = generator(seed).permutation(np.repeat(distribution.patterns, copies, axis=0), axis=0)
    train, valid = np.split(rows, [TRAIN])
    parts = {"train": train, "valid": valid, "test": valid}
    return Parts(parts, None, seeded(parts, seed, "shuffled copies of the patterns, test is valid"))
