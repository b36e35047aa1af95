"""A percentile far under its limit is met although few requests count as independent.

Counting tells nothing of how far: 200 requests that all take 40 ms and drift a little are worth
five independent ones, and five cannot prove a P95. But no distribution has 5 % of its values more
than 4.4 standard deviations above its mean (Cantelli's inequality). So with bounds for mean and
standard deviation of the logarithms a percentile is bounded. Those two need not hold where few
requests are far slower than all others, so that the bound is never below the slowest of them.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2
from scipy.stats import t as student

_FEWEST = 3.0


def upper_bound_s(
    values: NDArray[np.float64], percentile: float, confidence: float, inflation: float
) -> float:
    """A bound that a percentile is under with this confidence; inf where there is none.

    Both bounds, of mean and deviation, hold together; it is not below the slowest value. A failure
    has no logarithm, so that with one there is no bound.
    """
    worth = len(values) / inflation
    if worth < _FEWEST or not np.isfinite(values).all():
        return math.inf
    logs = np.log(np.maximum(values, 1e-9))
    each = (1 - confidence) / 2
    # Values that are alike scatter less around their own mean than around the true one.
    deviation = float(logs.std(ddof=1)) * math.sqrt(worth / (worth - 1))
    mean = float(logs.mean()) + float(student.isf(each, worth - 1)) * deviation / math.sqrt(worth)
    deviation *= math.sqrt((worth - 1) / float(chi2.ppf(each, worth - 1)))
    share = 1 - percentile / 100
    beyond = mean + math.sqrt(1 / share - 1) * deviation
    return max(math.exp(beyond), float(values.max())) if beyond < 700 else math.inf
