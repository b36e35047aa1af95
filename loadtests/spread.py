"""Durations counted in bounded memory: whole microseconds, above 1,000 rounded to three digits."""

from collections import Counter
from collections.abc import Iterable

from slo.rundir import Lateness


class Spread:
    """How often each duration came; of a thousand million values as small as of a thousand."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, micros: int) -> None:
        """Count one duration; below 0 is 0."""
        if micros < 1000:
            self._counts[max(0, micros)] += 1
        else:
            unit = 10 ** (len(str(micros)) - 3)
            self._counts[(micros + unit // 2) // unit * unit] += 1

    def add_ns(self, nanos: int) -> None:
        """Count one duration that is given in ns."""
        self.add(nanos // 1000)

    def pairs(self) -> list[tuple[int, int]]:
        """Durations and how often each came, as a message can hold them."""
        return sorted(self._counts.items())

    def merge(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Count another's in."""
        for micros, count in pairs:
            self._counts[micros] += count

    def percentiles(self) -> Lateness | None:
        """Percentiles by rank ceil(p * N), in ms; None of nothing."""
        total = self._counts.total()
        if not total:
            return None
        ordered = self.pairs()
        at = [_at(ordered, -(-total * percent // 100)) / 1000 for percent in (50, 95, 99, 100)]
        return Lateness(*at)


def _at(ordered: list[tuple[int, int]], rank: int) -> int:
    for micros, count in ordered:
        rank -= count
        if rank <= 0:
            return micros
    raise ValueError("no such rank")
