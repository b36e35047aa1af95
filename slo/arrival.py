"""How arrivals are spread in time: `--arrival` as a person writes it, and its rates."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from slo import quantities

FORMS = (
    "poisson, constant, gamma:SHAPE, ramp:RATE,RATE, steps:RATE,RATE,..., spike:RATE,TIME, "
    "replay:FILE, serial, concurrency:N"
)


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time over which the rate goes evenly from one value to another, per s."""

    start_s: float
    end_s: float
    first: float
    last: float

    @property
    def area(self) -> float:
        """How many arrivals are expected in it."""
        return (self.end_s - self.start_s) * (self.first + self.last) / 2

    def time_s(self, area: float) -> float:
        """When so many arrivals of it are expected to have come."""
        slope = (self.last - self.first) / (self.end_s - self.start_s)
        if not area:
            return self.start_s
        root = math.sqrt(max(0.0, self.first**2 + 2 * slope * area))
        return self.start_s + 2 * area / (self.first + root)

    def area_until(self, at_s: float) -> float:
        """How many are expected in it until then."""
        taken_s = min(max(at_s, self.start_s), self.end_s) - self.start_s
        slope = (self.last - self.first) / (self.end_s - self.start_s)
        return taken_s * (self.first + slope * taken_s / 2)


@dataclass(frozen=True, slots=True)
class Process:
    """An arrival process. Closed: `slots` requests are open, and the next is due as one ends."""

    kind: str
    shape: float = math.inf  # of the gamma distribution of gaps: inf is constant, 1 is Poisson
    rates: tuple[float, ...] = ()  # its own; empty: the rate of the run
    spike_s: float = 0.0
    slots: int = 0
    trace: str = ""

    @property
    def closed(self) -> bool:
        """Whether a request waits for the end of another, so that due is sent."""
        return self.slots > 0

    @property
    def has_rate(self) -> bool:
        """Whether it says itself how much is sent, so that no rate has to be given."""
        return self.closed or bool(self.trace) or self.kind in ("ramp", "steps")

    def segments(self, rate: float, warmup_s: float, duration_s: float) -> tuple[Segment, ...]:
        """The rate over warm-up and measured window; the warm-up is at the first rate."""
        end_s = warmup_s + duration_s
        if self.kind == "ramp":
            rest = [Segment(warmup_s, end_s, *self.rates)]
        elif self.kind == "steps":
            each = duration_s / len(self.rates)
            edges = [warmup_s + each * step for step in range(len(self.rates))] + [end_s]
            rest = [Segment(edges[n], edges[n + 1], r, r) for n, r in enumerate(self.rates)]
        elif self.kind == "spike":
            start_s = warmup_s + (duration_s - self.spike_s) / 2
            stop_s = start_s + self.spike_s
            rest = [
                Segment(warmup_s, start_s, rate, rate),
                Segment(start_s, stop_s, *self.rates * 2),
                Segment(stop_s, end_s, rate, rate),
            ]
        else:
            return (Segment(0.0, end_s, rate, rate),)
        before = [Segment(0.0, warmup_s, rest[0].first, rest[0].first)] if warmup_s else []
        return (*before, *rest)

    def mean_rate(self, rate: float, duration_s: float) -> float:
        """Arrivals a second of the measured window, on average."""
        return sum(part.area for part in self.segments(rate, 0.0, duration_s)) / duration_s


def expected(segments: tuple[Segment, ...], at_s: float) -> float:
    """How many arrivals are expected until then."""
    return sum(part.area_until(at_s) for part in segments)


def warped(units: Iterator[float], segments: tuple[Segment, ...]) -> Iterator[float]:
    """Ascending times of a stream of rate 1, as times of a stream with these rates."""
    parts = iter(segments)
    part, before = next(parts), 0.0
    for unit in units:
        while unit - before >= part.area:
            before += part.area
            following = next(parts, None)
            if following is None:
                return
            part = following
        yield part.time_s(unit - before)


def parse(text: str) -> Process:
    """Read an arrival process.

    Raises:
        ValueError: no such process; says what is allowed.
    """
    kind, colon, rest = text.strip().partition(":")
    given = [part.strip() for part in rest.split(",")] if colon else []
    try:
        return _process(kind, rest.strip(), given)
    except (ValueError, IndexError, KeyError) as error:
        words = f"{error}; " if isinstance(error, ValueError) and given and str(error) else ""
        raise ValueError(f"{text!r} is no arrival process: {words}allowed: {FORMS}") from None


def _process(kind: str, rest: str, given: list[str]) -> Process:
    if kind in ("poisson", "constant", "serial"):
        if given:
            raise ValueError(f"{kind} takes no value")
        return {
            "poisson": Process(kind, shape=1.0),
            "constant": Process(kind),
            "serial": Process(kind, slots=1),
        }[kind]
    if kind == "concurrency":
        return Process(kind, slots=_whole(rest))
    if kind == "replay" and rest:
        return Process(kind, trace=rest)
    if kind == "gamma":
        shape = float(rest)
        if not 0.01 <= shape <= 100:
            raise ValueError("a shape is from 0.01 (bursts) over 1 (Poisson) to 100 (even)")
        return Process(kind, shape=shape)
    if kind in ("ramp", "steps") and len(given) == max(2, len(given) if kind == "steps" else 2):
        return Process(kind, shape=1.0, rates=tuple(map(quantities.rate_per_s, given)))
    if kind == "spike" and len(given) == 2:
        rate, length_s = quantities.rate_per_s(given[0]), quantities.duration_s(given[1])
        return Process(kind, shape=1.0, rates=(rate,), spike_s=length_s)
    raise KeyError(kind)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise ValueError(f"{text!r} is no whole number of 1 or more")
    return int(text)
