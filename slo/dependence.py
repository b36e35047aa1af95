"""How many requests of a run are worth one independent one: `inflation`.

Requests under load wait behind one another, so that neighbours are alike: 6,000 of them at load 0.8
say as much of a percentile as some 200 independent ones do. The ratio is estimated from the run
itself; tests/benchmarks/verdict_calibration.py chose the numbers below, and measures how often a
verdict is wrong with them (docs/calibration.md).
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Likeness is read from sums over a second; a short run is cut into as many bins all the same.
BIN_S = 1.0
FEWEST_BINS = 32
# How far an estimate is off: it comes out low where it is uncertain, the more so the fewer times
# that it fits into the run. The smallest factors with which PASS is wrong in <= 5 % of runs.
_LATENCY_FACTOR = 2.2
_LATENCY_PER_SHARE = 5.0
_SHARE_FACTOR = 1.3
# So few bad requests do not show whether they come in clusters; then the slowest must tell.
_FEW = 10
_NO_NOISE = 1 + 1e-9  # equal latencies differ in their last bits
_SLOWEST = 0.05
_SLOWEST_FACTOR = 0.5


def of_percentile(due_s: Floats, values: Floats, percentile: float) -> float:
    """The inflation for a percentile of latencies; inf is a failure.

    A factor on all latencies leaves it as it is, and it knows no limit: so a server that gets
    slower alike for all requests can only lose by it.
    """
    n = len(values)
    if n < 2:
        return 1.0
    bins, count = _bins(due_s)
    plain = max(1.0, correlation_time(bins, count, logarithms(values)) or 1.0)
    careful = 1 + _LATENCY_FACTOR * (plain - 1) + _LATENCY_PER_SHARE * (plain**2 - 1) / n
    levels = [correlation_time(bins, count, over) for over in _over_levels(values, percentile)]
    known = [time for time in levels if time is not None]
    return min(float(n), max(careful, float(np.mean(known)) if known else 1.0))


def of_share(due_s: Floats, bad: Mask, slowness: Floats) -> float:
    """The inflation for a share of bad requests; `slowness` are their latencies, failures inf."""
    n = len(bad)
    if n < 2:
        return 1.0
    bins, count = _bins(due_s)
    plain = correlation_time(bins, count, bad.astype(np.float64)) or 1.0
    inflation = 1 + _SHARE_FACTOR * (plain - 1)
    if bad.sum() < _FEW:
        slowest = slowness * _NO_NOISE >= np.sort(slowness)[int((1 - _SLOWEST) * n)]
        of_slowest = correlation_time(bins, count, slowest.astype(np.float64)) or 1.0
        inflation = max(inflation, 1 + _SLOWEST_FACTOR * (of_slowest - 1))
    return min(float(n), max(inflation, 1.0))


def correlation_time(bins: NDArray[np.int64], count: int, scores: Floats) -> float | None:
    """Variance of the sum of scores, in units of what it is if they are independent.

    None where all scores are alike.
    """
    mean = scores.mean()
    spread = float(((scores - mean) ** 2).sum())
    if spread <= 1e-12 * max(1.0, float((scores**2).sum())):
        return None
    per_bin = np.bincount(bins, minlength=count)
    sums = np.bincount(bins, scores, minlength=count)
    return long_run_variance(sums - mean * per_bin) * count / spread


def long_run_variance(series: Floats) -> float:
    """Variance of a stationary series' sum, per step: Geyer's initial monotone sequence.

    Autocovariances are added in pairs while a pair is above 0, none counts more than the one
    before it, and lags end at half of the series.
    """
    length = len(series)
    centred = series - series.mean()
    spectrum = np.fft.rfft(centred, 2 * length)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2)[:length] / length
    half = length // 2
    pairs = covariance[0 : 2 * half : 2] + covariance[1 : 2 * half : 2]
    ended = np.flatnonzero(pairs <= 0)
    stop = min(int(ended[0]) if len(ended) else half, max(2, half // 2))
    total = 2 * np.minimum.accumulate(pairs[:stop]).sum() - covariance[0]
    return max(float(total), 0.0)


def logarithms(values: Floats) -> Floats:
    """Latencies as logarithms; a failure counts as slow as the slowest that did not fail.

    More than that, and a few failures would drown the likeness of all others.
    """
    finite = values[np.isfinite(values)]
    top = float(finite.max()) if len(finite) else 1.0
    logs: Floats = np.log(np.maximum(np.minimum(values, top), 1e-9))
    return logs


def _bins(due_s: Floats) -> tuple[NDArray[np.int64], int]:
    start, end = float(due_s.min()), float(due_s.max())
    count = max(FEWEST_BINS, int((end - start) / BIN_S) + 1)
    width = (end - start) / count or BIN_S
    return np.minimum(((due_s - start) / width).astype(np.int64), count - 1), count


def _over_levels(values: Floats, percentile: float) -> Iterator[Floats]:
    """Which requests are over the percentile, and over one that twice as many are over."""
    ordered, share = np.sort(values), 1 - percentile / 100
    for over in (share, min(2 * share, (1 + share) / 2)):
        level = ordered[min(len(values) - 1, int((1 - over) * len(values)))]
        yield (values > level * _NO_NOISE).astype(np.float64)
