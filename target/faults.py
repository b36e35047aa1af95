"""Faults on demand, so that a tool that claims to find them can be tested.

`--fault` takes KIND or KIND:KEY=VALUE,... and may be given several times. Pure: what a fault does
to the time of a step, and which requests it hits, follow from the options and a seed alone.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

ERRORS = ("error", "out-of-memory", "busy")
# Keys of each kind, with the value where it is not given; times in seconds.
KINDS: Mapping[str, Mapping[str, float]] = {
    "stall": {"at": 0.0, "for": 1.0, "every": math.inf},  # nothing moves
    "slow-start": {"for": 30.0, "factor": 3.0},  # steps last longer at first
    "throttle": {"at": 0.0, "for": math.inf, "every": math.inf, "factor": 2.0},
    "error": {"share": 1.0},  # 500
    "out-of-memory": {"share": 1.0},  # 503, the device had no memory
    "busy": {"share": 1.0},  # 503, no place was free
    "cut": {"share": 1.0, "after": 8},  # the connection ends after so many tokens
    "leak": {"mib": 1.0},  # memory that each request leaves behind
    "wrong": {"above": 0.0, "share": 1.0},  # answers go wrong while more requests run than that
}


class FaultError(Exception):
    """A `--fault` that cannot be read: one line for a person."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault and its numbers."""

    kind: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Faults:
    """All faults of a server; times count from its start."""

    faults: Sequence[Fault] = ()
    seed: int = 0

    def of(self, kind: str) -> Iterator[Mapping[str, float]]:
        """The numbers of each fault of a kind."""
        return (fault.values for fault in self.faults if fault.kind == kind)

    def hits(self, kind: str, number: int) -> Mapping[str, float] | None:
        """The fault of this kind that the request with this number meets, if any."""
        for place, values in enumerate(self.of(kind)):
            if random.Random(f"{self.seed} {kind} {place} {number}").random() < values["share"]:
                return values
        return None

    def wrong(self, number: int, running: int) -> bool:
        """Whether a request that starts beside so many others is answered wrongly."""
        values = self.hits("wrong", number)
        return values is not None and running > values["above"]

    def lasting(self, start_s: float, work_s: float) -> float:
        """When work that begins at `start_s` and would take `work_s` ends."""
        now, left = start_s, work_s
        while True:
            pace, change_s = self._pace(now)
            if math.isinf(change_s) or (pace and now + left * pace <= change_s):
                return now + left * pace if pace else math.inf
            left -= (change_s - now) / pace if pace else 0.0
            now = change_s

    def _pace(self, now: float) -> tuple[float, float]:
        """How much longer work takes at a time (0: it stands still), and until when that holds."""
        pace, change_s = 1.0, math.inf
        for kind in ("stall", "slow-start", "throttle"):
            for values in self.of(kind):
                inside, until_s = window(values, now)
                change_s = min(change_s, until_s)
                if inside:
                    pace *= values.get("factor", 0.0)
        return pace, change_s

    def leaked_bytes(self, requests: int) -> float:
        """Memory that so many requests left behind."""
        return sum(values["mib"] for values in self.of("leak")) * 2**20 * requests


def window(values: Mapping[str, float], now: float) -> tuple[bool, float]:
    """Whether a fault with at, for and every acts at a time, and when that changes next."""
    start, length = values.get("at", 0.0), values["for"]
    every = values.get("every", math.inf)
    if now < start:
        return False, start
    begun = start
    if not math.isinf(every):
        begun += math.floor((now - start) / every) * every
        if begun + every <= now:  # rounding
            begun += every
    if now < begun + length:
        return True, begun + length
    return False, begun + every


def read_fault(text: str) -> Fault:
    """Read KIND:KEY=VALUE,...; raises FaultError with what is allowed."""
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise FaultError(f"--fault {text}: {kind!r} is no fault; allowed: {', '.join(KINDS)}")
    values = dict(KINDS[kind])
    for part in rest.split(",") if rest else ():
        key, _, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        least = 1e-3 if key in ("factor", "every") else 0.0
        if key not in values or not value >= least:
            keys = ", ".join(values)
            raise FaultError(f"--fault {text}: {part!r}; allowed: {keys}, each with a number")
        values[key] = value
    if values.get("every", math.inf) <= values.get("for", 0.0) < math.inf:
        raise FaultError(f"--fault {text}: every must be longer than for")
    if values.get("share", 0.0) > 1:
        raise FaultError(f"--fault {text}: share is at most 1")
    return Fault(kind, values)


def read_faults(texts: Sequence[str], seed: int) -> Faults:
    """All faults of a command line."""
    return Faults(tuple(read_fault(text) for text in texts), seed)
