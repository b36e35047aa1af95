"""Hours at one rate, in windows: does memory grow, or latency, and how sure is that?

A slope is Theil and Sen's: the median of the slopes between all windows, which a few odd windows
do not move, with its interval. It is told as a share of the level at the start, per hour.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import theilslopes

from slo.gpu_log import GpuLog
from slo.latencies import Floats
from slo.server_log import ServerLog

FEWEST = 8  # windows, before anything is said
CONFIDENCE = 0.99  # looked at after each window, so that one look must be surer
FLOORS = {"memory": 0.01, "e2e p50": 0.05, "e2e p95": 0.05}  # per hour; less is no growth to tell

Pair = tuple[float, float]  # when, in seconds from the run's start, and a value


@dataclass(frozen=True, slots=True)
class Window:
    """One stretch of the soak; None where nothing was measured."""

    start_s: float
    end_s: float
    requests: int
    values: dict[str, float | None]  # memory in MiB, latencies in seconds


@dataclass(frozen=True, slots=True)
class Growth:
    """How one thing grew: shares of its start per hour, and whether that is sure and enough."""

    what: str
    start: float
    end: float
    per_hour: float
    low: float
    high: float
    grows: bool
    steady: bool  # sure to grow by no more than is worth telling

    @property
    def sentence(self) -> str:
        """E.g. "memory grows: 12.1 %/h (11.0 to 13.2 ...), from 4,010 MiB to 10,020 MiB"."""
        not_sure = "does not grow" if self.steady else "cannot be said to grow or not"
        way = "grows" if self.grows else not_sure
        unit = " MiB" if self.what == "memory" else " s"
        return (
            f"{self.what} {way}: {100 * self.per_hour:.3g} %/h ({100 * self.low:.3g} to"
            f" {100 * self.high:.3g} with {100 * CONFIDENCE:g} % confidence), from"
            f" {self.start:,.4g}{unit} to {self.end:,.4g}{unit}"
        )


def windows_of(
    e2e: Iterable[Pair], memory: Sequence[Pair], *, start_s: float, end_s: float, window_s: float
) -> list[Window]:
    """Whole windows from `start_s` on; a failed request counts as inf."""
    count = max(0, int((end_s - start_s) / window_s))
    edges = start_s + window_s * np.arange(count + 1)
    by_window: list[list[float]] = [[] for _ in range(count)]
    for at_s, value in e2e:
        index = int((at_s - start_s) // window_s)
        if 0 <= index < count:
            by_window[index].append(value)
    at = np.array([at_s for at_s, _ in memory])
    held = np.array([value for _, value in memory])
    found = []
    for index in range(count):
        inside = (at >= edges[index]) & (at < edges[index + 1])
        values = np.sort(by_window[index])
        found.append(
            Window(
                float(edges[index]),
                float(edges[index + 1]),
                len(values),
                {
                    "memory": float(np.median(held[inside])) if inside.any() else None,
                    "e2e p50": _percentile(values, 0.50),
                    "e2e p95": _percentile(values, 0.95),
                },
            )
        )
    return found


def growths(windows: Sequence[Window]) -> list[Growth]:
    """What can be said of each thing; nothing of one with too few windows."""
    found = (_growth(windows, what, floor) for what, floor in FLOORS.items())
    return [growth for growth in found if growth is not None]


def memory_of(server: ServerLog, gpu: GpuLog) -> list[Pair]:
    """Memory in MiB over time: what the server allocated or reserved, else what its GPU holds.

    Of several GPUs it is the one that holds most more in the end than at the start.
    """
    for name in ("allocated_mib", "reserved_mib"):
        told = [(s.at_s, v) for s in server.samples if (v := getattr(s, name)) is not None]
        if told:
            return told
    by_gpu: dict[int, list[Pair]] = {}
    for sample in gpu.samples:
        if sample.mem_used_mib is not None:
            by_gpu.setdefault(sample.gpu, []).append((sample.at_s, sample.mem_used_mib))
    return max(by_gpu.values(), key=_more_in_the_end, default=[])


def _more_in_the_end(memory: Sequence[Pair]) -> float:
    held = np.array([value for _, value in memory])
    some = max(1, len(held) // 4)
    return float(np.median(held[-some:]) - np.median(held[:some]))


def _growth(windows: Sequence[Window], what: str, floor: float) -> Growth | None:
    known = [
        ((window.start_s + window.end_s) / 2, value)
        for window in windows
        if (value := window.values[what]) is not None
    ]
    if len(known) < FEWEST:
        return None
    hours = np.array([at_s for at_s, _ in known]) / 3600
    values = np.array([value for _, value in known])
    # The line's ends, not those of the data: one odd window at an end says nothing.
    slope, crossing, low, high = theilslopes(values, hours, alpha=CONFIDENCE)
    start, end = (float(crossing + slope * at) for at in (hours[0], hours[-1]))
    if start <= 0:
        return None
    return Growth(
        what, start, end, float(slope) / start, float(low) / start, float(high) / start,
        grows=bool(low / start > floor),
        steady=bool(high / start <= floor),
    )  # fmt: skip


def _percentile(ordered: Floats, share: float) -> float | None:
    if not len(ordered):
        return None
    value = float(ordered[min(len(ordered) - 1, int(np.ceil(share * len(ordered))) - 1)])
    return value if np.isfinite(value) else None
