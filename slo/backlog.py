"""Does a server keep up? Open requests that pile up all through a run say no."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_QUARTERS = 4
_FEWEST = 8
_SHARE = 0.1


def grows(
    due_s: NDArray[np.float64], ended_s: NDArray[np.float64], window_s: tuple[float, float]
) -> bool:
    """Whether more requests were open at the end of each quarter than at the end of the one before.

    And at the last at least a tenth of all that were due in the window: a queue that is stable, but
    fills from empty, seldom gets there. Such a run has no steady state to be a sample of.
    """
    start, end = window_s
    edges = np.linspace(start, end, _QUARTERS + 1)[1:]
    known = np.where(np.isnan(ended_s), due_s, ended_s)
    open_then = [int(((due_s <= edge) & (known > edge)).sum()) for edge in edges]
    due = int(((due_s >= start) & (due_s < end)).sum())
    rising = all(before < after for before, after in pairwise(open_then))
    return rising and open_then[-1] >= max(_FEWEST, _SHARE * due)
