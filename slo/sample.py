"""The judged values of one metric."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slo.histograms import percentile_rank


@dataclass(frozen=True, slots=True)
class Sample:
    """Judged values of one metric in seconds, in ascending order; inf is over every limit.

    `at_least` and `at_most` differ where a value is known only between two bounds: a request that
    was cancelled when the run was stopped, a gap inside a histogram's bucket. `cumulative[i]` is
    how many values the first i + 1 entries stand for. `due_s` and `typical` have one entry a
    request: when it was due, and its value (of gaps: their mean). Of gaps `largest` is the largest
    of each request, and `heaviest` how many the request with most of them has, in means.
    """

    at_least: NDArray[np.float64]
    at_most: NDArray[np.float64]
    cumulative: NDArray[np.int64]
    due_s: NDArray[np.float64]
    typical: NDArray[np.float64]
    largest: NDArray[np.float64] | None = None
    heaviest: float = 1.0
    backlog: bool = False  # the server fell behind all through the run (`slo.backlog`)

    @property
    def n(self) -> int:
        """How many values there are."""
        return int(self.cumulative[-1]) if len(self.cumulative) else 0

    def over(self, values: NDArray[np.float64], limit: float) -> int:
        """How many of `at_least` or `at_most` are over a limit."""
        within = int(np.searchsorted(values, limit, side="right"))
        return self.n - (int(self.cumulative[within - 1]) if within else 0)

    def at_rank(self, values: NDArray[np.float64], rank: int) -> float | None:
        """The value of that rank, counted from 1; None for inf."""
        value = float(values[np.searchsorted(self.cumulative, rank)])
        return value if math.isfinite(value) else None

    def percentile(self, percentile: float) -> float | None:
        """The value of rank ceil(p*N), never flattered; None among failures or without values."""
        rank = percentile_rank(self.n, percentile)
        return self.at_rank(self.at_most, rank) if self.n else None
