"""What probes at several rates prove together: the highest rate that passes, the lowest that fails.

More load never makes a server faster. So what was seen at a rate counts for every lower one when a
promise is to be proven kept, and for every higher one when it is to be proven broken: requests of
several probes are added up (pooled), each probe's worth its number over its inflation.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from slo.quantile_test import chance, holm, meets
from slo.verdict import Result


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a probe says of one objective: so many of so many independent requests were over it.

    `allowed` is the share that may be over; `confidence` the one that slo.yaml asks for. `far`: all
    lay so far under the limit that few requests prove it met (slo.far_limit).
    """

    objective: str
    over: float
    worth: float
    allowed: float
    confidence: float
    far: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """One load at one rate, judged.

    `fails` names what bounds by itself, whatever the shares: e.g. a missed achieved_rate. `spent_s`
    and `requests` are all that it cost, warm-up included.
    """

    rate: float
    result: Result
    requests: int
    spent_s: float
    evidence: tuple[Evidence, ...] = ()
    fails: str | None = None
    stopped: bool = False  # hopeless, so that it was ended early
    why: str = ""
    directory: str = ""
    latencies: dict[str, float | None] = field(default_factory=dict)  # e.g. "ttft p95", seconds
    tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The answer's two ends; None where nothing is proven on that side."""

    passes: float | None
    fails: float | None


def usable(probes: Iterable[Probe]) -> list[Probe]:
    """Probes that say something, by rate; one that is INVALID never becomes a bound."""
    return sorted((p for p in probes if p.result is not Result.INVALID), key=lambda p: p.rate)


def bounds(probes: Iterable[Probe]) -> Bounds:
    """The highest rate at which the pooled probes prove PASS, and the lowest with FAIL.

    Where noise made them cross, the failing end gives way: a claim must not rest on a rate above
    one that was proven to fail, so the passing end lies below every failing one.
    """
    known = usable(probes)
    rates = sorted({probe.rate for probe in known})
    failing = [rate for rate in rates if proven_fail(known, rate)]
    fails = failing[0] if failing else None
    passing = [r for r in rates if (fails is None or r < fails) and proven_pass(known, r)]
    return Bounds(passing[-1] if passing else None, fails)


def proven_pass(probes: Sequence[Probe], rate: float) -> bool:
    """Whether probes at this rate and above prove every objective met."""
    above = [probe for probe in careful(probes) if probe.rate >= rate and probe.evidence]
    if any(probe.fails for probe in probes if probe.rate <= rate) or not above:
        return False

    def proven(pooled: Evidence) -> bool:
        return meets(pooled.over, pooled.worth, pooled.allowed, pooled.confidence)

    far = {one.objective for probe in above for one in probe.evidence if one.far}
    return all(name in far or _some_pool(above, name, proven) for name in _names(above))


def proven_fail(probes: Sequence[Probe], rate: float) -> bool:
    """Whether probes at this rate and below prove an objective missed, beside the others (Holm)."""
    below = [probe for probe in probes if probe.rate <= rate]
    if any(probe.fails for probe in below):
        return True
    # From the rate downwards, each further probe once: the pool nearest to the rate comes first.
    for count in range(1, len(below) + 1):
        pools = [pooled(below[-count:], name) for name in _names(below)]
        p_values = [chance(pool.over, pool.worth, pool.allowed) for pool in pools]
        if any(holm(p_values, [1 - pool.confidence for pool in pools])):
            return True
    return False


def careful(probes: Sequence[Probe]) -> list[Probe]:
    """Probes none of which takes its requests for more independent than a longer one below it did.

    Likeness of neighbours grows with load. A short probe that met no burst does not show it; a
    longer one at a lower rate, which did, tells how little the short one is worth; and where it saw
    any request over the limit, the short one is not far from it.
    """
    return [replace(probe, evidence=tuple(_careful(probe, probes))) for probe in probes]


def _careful(probe: Probe, probes: Sequence[Probe]) -> Iterator[Evidence]:
    below = [p for p in probes if p.rate <= probe.rate and p.requests >= probe.requests]
    for one in probe.evidence:
        worths = [
            other.worth / p.requests * probe.requests
            for p in below
            for other in p.evidence
            if other.objective == one.objective
        ]
        share = min(1.0, *(worth / one.worth for worth in worths)) if one.worth else 1.0
        seen = any(o.over for p in below for o in p.evidence if o.objective == one.objective)
        yield replace(one, over=one.over * share, worth=one.worth * share, far=one.far and not seen)


def pooled(probes: Iterable[Probe], objective: str) -> Evidence:
    """Evidence of several probes on one objective, added up."""
    parts = [one for probe in probes for one in probe.evidence if one.objective == objective]
    over, worth = sum(one.over for one in parts), sum(one.worth for one in parts)
    return Evidence(objective, over, worth, parts[0].allowed, parts[0].confidence)


def _some_pool(above: Sequence[Probe], name: str, proven: Callable[[Evidence], bool]) -> bool:
    """Whether the probes from the lowest rate up to some higher one prove it."""
    rates = sorted({probe.rate for probe in above})
    return any(proven(pooled((p for p in above if p.rate <= top), name)) for top in rates)


def _names(probes: Iterable[Probe]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.objective for probe in probes for one in probe.evidence))
