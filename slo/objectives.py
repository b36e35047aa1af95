"""What slo.yaml asks for, as values: objectives, the load they hold at, limits of validity."""

from dataclasses import dataclass, field
from typing import Literal

from slo import quantities

Bound = Literal["max", "min"]
Severity = Literal["gate", "warn"]

# Metrics of single requests, judged by a percentile.
LATENCIES = ("ttft", "ttfat", "itl", "tpot", "e2e")
BOUND_OF: dict[str, Bound] = {
    **dict.fromkeys(LATENCIES, "max"),
    "error_rate": "max",
    "achieved_rate": "min",
    "output_tokens_per_s": "min",
}
METRICS = tuple(BOUND_OF)


@dataclass(frozen=True, slots=True)
class Objective:
    """One line of slo.yaml; `limit` is in `unit`, `limit_text` as it is written there."""

    metric: str
    limit: float
    limit_text: str
    unit: str  # s, 1 (a share), 1/s or tokens/s
    percentile: float | None = None
    scenario: str = "all"
    severity: Severity = "gate"
    confidence: float = 0.95
    min_samples: int = 0

    @property
    def bound(self) -> Bound:
        return BOUND_OF[self.metric]

    @property
    def name(self) -> str:
        """E.g. "ttft p95", "error_rate"."""
        return self.metric if self.percentile is None else f"{self.metric} p{self.percentile:g}"

    @property
    def label(self) -> str:
        """The name, and the scenario where it is about one."""
        return label(self.name, self.scenario)


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


@dataclass(frozen=True, slots=True)
class Slo:
    """One slo.yaml."""

    service: str
    objectives: tuple[Objective, ...]
    load: Load = field(default=Load())
    validity: Limits = field(default=Limits())

    @property
    def tightest_s(self) -> float | None:
        """The tightest latency limit in seconds; None where none is set."""
        limits = [o.limit for o in self.objectives if o.metric in LATENCIES]
        return min(limits, default=None)


def label(name: str, scenario: str) -> str:
    """E.g. "ttft p95", "e2e p95 of math"."""
    return name if scenario == "all" else f"{name} of {scenario}"


def limit_of(metric: str, written: object) -> tuple[float, str]:
    """A limit and its unit, from what slo.yaml says of a metric.

    Raises:
        ValueError: no such limit; says what is allowed.
    """
    text = _text(written)
    if metric in LATENCIES:
        seconds = quantities.duration_s(text)
        if seconds <= 0:
            raise ValueError(f"{text!r} can be met by no request; a latency limit is above 0s")
        return seconds, "s"
    if metric == "error_rate":
        return _fraction(text), "1"
    if metric == "achieved_rate":
        if text.endswith("%"):
            return _fraction(text), "1"
        if "/" not in text:
            raise ValueError(f"{text!r} has no unit; write 99% (of the offered rate) or 3/s")
        return quantities.rate_per_s(text), "1/s"
    per_second = quantities.rate_per_s(text)
    return per_second, "tokens/s"


def confidence_of(written: object) -> float:
    """A confidence such as 0.95 or "95%".

    Raises:
        ValueError: no such confidence; says what is allowed.
    """
    value = quantities.share(_text(written))
    if not 0.5 <= value < 1:
        raise ValueError(f"{written!r} is no confidence; allowed: 50% and more, below 100%")
    return value


def _fraction(text: str) -> float:
    value = quantities.share(text)
    if not 0 <= value < 1 and text.strip() != "100%":
        raise ValueError(f"{text!r} is not within 0% to 100%")
    return value


def _text(written: object) -> str:
    if isinstance(written, bool) or not isinstance(written, str | int | float):
        raise ValueError(f"{written!r} is no quantity; write a number with its unit")
    return str(written).strip()
