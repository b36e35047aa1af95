"""What slo.yaml asks for, as values: objectives, the load they hold at, limits of validity."""

from dataclasses import dataclass, field
from typing import Literal

from slo import quantities
from slo.resources import RESOURCE_METRICS, resource_limit

Bound = Literal["max", "min"]
Severity = Literal["gate", "warn"]

# Metrics of single requests, judged by a percentile. `session` is one of all turns of a session.
PER_REQUEST = ("ttft", "ttfat", "itl", "tpot", "e2e")
LATENCIES = (*PER_REQUEST, "session")
# Shares of requests, each counted by whether a request is bad.
SHARES = ("error_rate", "goodput", "accuracy")
RELATIVE = (*LATENCIES, "output_tokens_per_s")  # what max_change may compare with a baseline
BOUNDS: dict[str, tuple[Bound, ...]] = {
    **dict.fromkeys(LATENCIES, ("max",)),
    "error_rate": ("max",),
    "goodput": ("min",),
    "accuracy": ("min",),
    "achieved_rate": ("min",),
    "output_tokens_per_s": ("min",),
    **dict.fromkeys(RESOURCE_METRICS, ("max", "min")),
}
METRICS = tuple(BOUNDS)
# Counted, or the highest of what was seen: no sample of anything, so that no interval is honest and
# chance has no part in it.
EXACT = ("achieved_rate", *(name for name in RESOURCE_METRICS if name.endswith("_max")))


@dataclass(frozen=True, slots=True)
class Part:
    """One latency that a good request meets; `limit_text` is as slo.yaml writes it."""

    metric: str
    limit: float
    limit_text: str


@dataclass(frozen=True, slots=True)
class Objective:
    """One line of slo.yaml; `limit` is in `unit`, `limit_text` as it is written there.

    A relative one is about the change against a baseline run: its limit is a share of that.
    """

    metric: str
    limit: float
    limit_text: str
    unit: str  # s, 1 (a share), 1/s, tokens/s, or that of a resource
    percentile: float | None = None
    scenario: str = "all"
    severity: Severity = "gate"
    confidence: float = 0.95
    min_samples: int = 0
    bound: Bound = "max"
    relative: bool = False
    parts: tuple[Part, ...] = ()  # of goodput

    @property
    def name(self) -> str:
        """E.g. "ttft p95", "error_rate", "e2e p95 change"."""
        what = self.metric if self.percentile is None else f"{self.metric} p{self.percentile:g}"
        if self.parts:
            limits = ", ".join(f"{part.metric} <= {part.limit_text}" for part in self.parts)
            what = f"{what} ({limits})"
        return f"{what} change" if self.relative else what

    @property
    def label(self) -> str:
        """The name, and the scenario where it is about one."""
        return label(self.name, self.scenario)

    @property
    def bounded(self) -> str:
        """The limit as the verdict has it: "<= 420ms"."""
        return f"{'<=' if self.bound == 'max' else '>='} {self.limit_text}"

    @property
    def line(self) -> str:
        """Which line of the verdict it is, also beside one of the same label."""
        return line_of(self.label, self.bounded, self.severity)

    @property
    def allowed(self) -> float | None:
        """The share of requests that may be bad; None where the objective is none of a share."""
        if self.relative:
            return None
        if self.percentile is not None:
            return 1 - self.percentile / 100
        if self.metric in SHARES:
            return self.limit if self.bound == "max" else 1 - self.limit
        return None

    @property
    def limits_s(self) -> tuple[float, ...]:
        """The latencies that it sets a limit to, in seconds."""
        if self.parts:
            return tuple(part.limit for part in self.parts)
        return (self.limit,) if self.metric in PER_REQUEST and not self.relative else ()


@dataclass(frozen=True, slots=True)
class Load:
    """The load that the objectives hold at; None where slo.yaml does not say."""

    rate_per_s: float | None = None
    arrival: str | None = None
    duration_s: float | None = None
    warmup_s: float | None = None
    mix: dict[str, float] | None = None
    input_class: str | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run is too poor to be judged."""

    lateness: float = 0.05  # of the tightest latency limit
    achieved_rate: float = 0.99  # of the offered rate
    dropped: int = 0  # arrivals that the generator could not start
    duration_s: float = 0.0  # measured window, at least
    token_doubt: float = 0.01  # of the requests
    cache_hits: float = 0.01  # of the requests, with most of their prompt out of a cache
    clock_step_s: float = 0.05


@dataclass(frozen=True, slots=True)
class Slo:
    """One slo.yaml."""

    service: str
    objectives: tuple[Objective, ...]
    load: Load = field(default=Load())
    validity: Limits = field(default=Limits())
    baseline: str | None = None  # a name, or a run directory

    @property
    def tightest_s(self) -> float | None:
        """The tightest latency limit in seconds; None where none is set."""
        return min((limit for o in self.objectives for limit in o.limits_s), default=None)


def label(name: str, scenario: str) -> str:
    """E.g. "ttft p95", "e2e p95 of math"."""
    return name if scenario == "all" else f"{name} of {scenario}"


def line_of(label: str, bounded: str, severity: str) -> str:
    """E.g. "ttft p95 <= 420ms", "e2e p95 of math <= 2s (warns only)"."""
    return f"{label} {bounded}" + (" (warns only)" if severity == "warn" else "")


def limit_of(metric: str, written: object) -> tuple[float, str]:
    """A limit and its unit, from what slo.yaml says of a metric.

    Raises:
        ValueError: no such limit; says what is allowed.
    """
    text = written_text(written)
    if metric in LATENCIES:
        seconds = quantities.duration_s(text)
        if seconds <= 0:
            raise ValueError(f"{text!r} can be met by no request; a latency limit is above 0s")
        return seconds, "s"
    if metric in SHARES:
        return _fraction(text), "1"
    if metric in RESOURCE_METRICS:
        return resource_limit(metric, text)
    if metric == "achieved_rate":
        if text.endswith("%"):
            return _fraction(text), "1"
        if "/" not in text:
            raise ValueError(f"{text!r} has no unit; write 99% (of the offered rate) or 3/s")
        return quantities.rate_per_s(text), "1/s"
    per_second = quantities.rate_per_s(text)
    return per_second, "tokens/s"


def change_of(metric: str, written: object) -> float:
    """A change against a baseline, such as "+10%" of a latency or "-5%" of a rate.

    Raises:
        ValueError: no such change; says what is allowed.
    """
    if metric not in RELATIVE:
        raise ValueError(f"is not for {metric}; it is for {', '.join(RELATIVE)}")
    text = written_text(written)
    change = quantities.share(text)
    grows = "max" in BOUNDS[metric]
    if not text.endswith("%") or not (0 <= change < 10 if grows else -1 < change <= 0):
        example = "0% and more, e.g. +10%" if grows else "0% and less, e.g. -10%"
        raise ValueError(f"{text!r} is no change of {metric}; write {example}")
    return change


def confidence_of(written: object) -> float:
    """A confidence such as 0.95 or "95%".

    Raises:
        ValueError: no such confidence; says what is allowed.
    """
    value = quantities.share(written_text(written))
    if not 0.5 <= value < 1:
        raise ValueError(f"{written!r} is no confidence; allowed: 50% and more, below 100%")
    return value


def _fraction(text: str) -> float:
    value = quantities.share(text)
    if not 0 <= value < 1 and text.strip() != "100%":
        raise ValueError(f"{text!r} is not within 0% to 100%")
    return value


def written_text(written: object) -> str:
    """What slo.yaml writes for a quantity, which YAML may have made a number of."""
    if isinstance(written, bool) or not isinstance(written, str | int | float):
        raise ValueError(f"{written!r} is no quantity; write a number with its unit")
    return str(written).strip()
