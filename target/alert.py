"""A rolling percentile with an alarm that neither flaps nor repeats itself."""

import math
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

LEAST = 20  # a P95 of fewer rests on no sample above it


@dataclass(frozen=True, slots=True)
class Rule:
    """When the alarm goes on, and, lower, when it goes off again."""

    limit_s: float
    window_s: float = 60.0
    clear: float = 0.9  # of the limit
    percentile: float = 95.0


@dataclass(slots=True)
class RollingAlert:
    """The percentile of the last seconds, and whether it is over its limit."""

    rule: Rule
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr)  # noqa: T201
    firing: bool = False
    _seen: deque[tuple[float, float]] = field(default_factory=deque)

    def observe(self, now_s: float, value_s: float) -> None:
        """Take in the latency of a request that ended."""
        self._seen.append((now_s, value_s))
        value = self.value(now_s)
        if value is None:
            return
        rule = self.rule
        what = f"P{rule.percentile:g} of the last {rule.window_s:g} s"
        if not self.firing and value > rule.limit_s:
            self.firing = True
            self.say(f"target: alert: {what} is {value:.3f} s, over {rule.limit_s:g} s")
        elif self.firing and value < rule.clear * rule.limit_s:
            self.firing = False
            self.say(f"target: alert over: {what} is {value:.3f} s")

    def value(self, now_s: float) -> float | None:
        """The percentile by rank; None with too few requests."""
        while self._seen and self._seen[0][0] < now_s - self.rule.window_s:
            self._seen.popleft()
        if len(self._seen) < LEAST:
            return None
        values = sorted(value for _, value in self._seen)
        return values[math.ceil(self.rule.percentile / 100 * len(values)) - 1]
