"""How often a capacity search claims too much, how near it comes, and what plain bisection does.

    python -m tests.benchmarks.capacity_search        SEED=n, QUICK=1 (under a minute)

The `sim` engine in virtual time, on three GPUs: true capacity is the rate at which the P95s of a
very long run meet the SLO. Each search is the production one: the same planner, the same pooled
test on the same effective sample, a hopeless probe ended by the same rule. The last line is JSON.
"""

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from slo.capacity import Evidence, Probe, bounds
from slo.capacity_plan import Ask, Limits
from slo.capacity_search import run as search
from slo.latencies import Floats, Mask
from slo.quantile_test import Decision, chance, decide_percentile
from slo.sample import Sample
from slo.verdict import Result
from target.physics import GPUS, Setup
from tests.benchmarks import fast_trace

CONFIDENCE, ALLOWED = 0.95, 0.05
OVER = 1.05  # a claim above this share of the truth is too much
LOOKS = 5  # at a probe that runs, to see whether it is hopeless


@dataclass(frozen=True, slots=True)
class Shape:
    """A server, and its promise: P95 of TTFT and of E2E in seconds."""

    name: str
    setup: Setup
    ttft_s: float
    e2e_s: float

    @property
    def limits_s(self) -> tuple[float, float]:
        return self.ttft_s, self.e2e_s


SHAPES = (
    Shape("L4, 128 places", Setup(GPUS["l4"], max_num_seqs=128), 0.15, 4.5),
    Shape("RTX 4090, 128 places", Setup(GPUS["rtx4090"], max_num_seqs=128), 0.15, 2.0),
    Shape("H200, 256 places", Setup(GPUS["h200"], max_num_seqs=256), 0.03, 0.9),
)


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests of one load: when they came, and how long they took."""

    at_s: Floats
    ttft_s: Floats
    e2e_s: Floats

    @property
    def latencies(self) -> tuple[Floats, Floats]:
        return self.ttft_s, self.e2e_s


def loaded(rng: np.random.Generator, rate: float, count: int, setup: Setup) -> Trace:
    """Poisson arrivals; prompts of 64 to 900 tokens, log-uniform; answers of 65 in the mean."""
    at = np.cumsum(rng.exponential(1 / rate, count))
    prompt = np.exp(rng.uniform(math.log(64), math.log(900), count)).astype(int)
    output = (1 + rng.geometric(1 / 64, count)).clip(1, 512)
    first, last = fast_trace.run(at.tolist(), prompt.tolist(), output.tolist(), setup)
    return Trace(at, np.array(first) - at, np.array(last) - at)


def true_capacity(shape: Shape, requests: int) -> float:
    """By bisection with so many requests a step."""
    rng = np.random.default_rng(99)
    low, high = 0.0, 60_000 / float(loaded(rng, 1e9, 60_000, shape.setup).e2e_s.max())
    for _ in range(10):
        rate = (low + high) / 2
        trace = loaded(rng, rate, requests, shape.setup)
        seen = [float(np.quantile(x[requests // 20 :], 0.95)) for x in trace.latencies]
        met = all(x <= limit for x, limit in zip(seen, shape.limits_s, strict=True))
        low, high = (rate, high) if met else (low, rate)
    return low


def decided(at_s: Floats, values: Floats, limit_s: float) -> Decision:
    """The production test of one percentile."""
    ordered = np.sort(values)
    sample = Sample(ordered, ordered, np.arange(1, len(values) + 1), at_s, values)
    return decide_percentile(sample, 95, limit_s, CONFIDENCE)


def probed(rng: np.random.Generator, shape: Shape, ask: Ask) -> Probe:
    """One probe, from an empty server."""
    end_s = ask.warmup_s + ask.duration_s
    trace = loaded(rng, ask.rate, max(2, int(rng.poisson(ask.rate * end_s))), shape.setup)
    measured = trace.at_s >= ask.warmup_s
    until_s, now = end_s, measured
    for look in range(1, LOOKS):
        at_s = ask.warmup_s + ask.duration_s * look / LOOKS
        now = measured & (trace.at_s < at_s)
        if hopeless(trace, now, at_s, int(measured.sum()), shape):
            until_s = at_s
            break
    else:
        now = measured
    decisions = [
        decided(trace.at_s[now], waited(trace, x, until_s)[now] if until_s < end_s else x[now], s)
        for x, s in zip(trace.latencies, shape.limits_s, strict=True)
    ]
    outcomes = {decision.outcome for decision in decisions}
    worst = (Result.FAIL, Result.INCONCLUSIVE, Result.PASS)
    return Probe(
        rate=ask.rate,
        result=next(result for result in worst if result in outcomes),
        requests=int((trace.at_s < until_s).sum()),
        spent_s=until_s,
        evidence=tuple(
            Evidence(name, d.over / d.inflation, d.n / d.inflation, ALLOWED, CONFIDENCE, d.far)
            for name, d in zip(("ttft p95", "e2e p95"), decisions, strict=True)
        ),
        stopped=until_s < end_s,
    )


def waited(trace: Trace, values: Floats, at_s: float) -> Floats:
    """Latencies as they are known at a moment: what is open took at least so long."""
    known: Floats = np.minimum(values, at_s - trace.at_s)
    return known


def hopeless(trace: Trace, now: Mask, at_s: float, planned: int, shape: Shape) -> bool:
    """As slo.early_stop: missed even if all that is to come is in time."""
    if now.sum() < 2:
        return False
    for values, limit_s in zip(trace.latencies, shape.limits_s, strict=True):
        known = waited(trace, values, at_s)[now]
        over = int((known > limit_s).sum())
        inflation = decided(trace.at_s[now], known, limit_s).inflation if over else 1.0
        alpha = (1 - CONFIDENCE) / 2
        seen = (chance(over / inflation, n / inflation, ALLOWED) for n in (now.sum(), planned))
        if over and max(seen) <= alpha:
            return True
    return False


def searched(seed: int, shape: Shape, truth: float, budget: int) -> tuple[float, int]:
    """What a search claims, as a share of the truth, and how many requests it took."""
    rng = np.random.default_rng([seed, budget])
    limits = Limits(
        low=truth * float(rng.uniform(0.05, 0.2)),  # nobody knows the answer beforehand
        high=truth * 100,
        resolution=0.02,
        budget_requests=budget,
        shortest_s=max(1.0, shape.e2e_s),
        settle_s=shape.e2e_s / 2,
    )
    probes, _ = search((), limits, lambda ask, _: probed(rng, shape, ask), lambda _: None)
    claim = bounds(probes).passes or 0.0
    return claim / truth, sum(probe.requests for probe in probes)


def bisected(seed: int, shape: Shape, truth: float, each: int, steps: int) -> tuple[float, int]:
    """Plain bisection: a step passes where its P95s do."""
    rng = np.random.default_rng([seed, each])
    low, high = truth * float(rng.uniform(0.05, 0.2)), truth * float(rng.uniform(1.5, 4))
    for _ in range(steps):
        rate = (low + high) / 2
        trace = loaded(rng, rate, each, shape.setup)
        kept = trace.at_s >= min(shape.e2e_s / 2, 0.2 * each / rate)  # its warm-up, as above
        seen = [float(np.quantile(x[kept], 0.95)) for x in trace.latencies]
        met = all(x <= limit for x, limit in zip(seen, shape.limits_s, strict=True))
        low, high = (rate, high) if met else (low, rate)
    return low / truth, steps * each


def told(name: str, ratios: Sequence[float], requests: Sequence[int]) -> dict[str, float]:
    """One line for a person, and its numbers."""
    values, n = np.array(ratios), len(ratios)
    over = int((values > OVER).sum())
    numbers = {
        "searches": n,
        "overclaim_share": over / n,
        "overclaim_upper": float(beta.ppf(0.95, over + 1, n - over)) if over < n else 1.0,
        "median_ratio": float(np.median(values)),
        "p5_ratio": float(np.quantile(values, 0.05)),
        "p95_ratio": float(np.quantile(values, 0.95)),
        "requests": float(np.mean(requests)),
    }
    print(
        f"{name:44} median {numbers['median_ratio']:.3f} of the truth"
        f" ({numbers['p5_ratio']:.2f} - {numbers['p95_ratio']:.2f}), over-claims > 5 %: {over} of"
        f" {n} (<= {100 * numbers['overclaim_upper']:.1f} %), {numbers['requests']:,.0f} requests",
        flush=True,
    )
    return numbers


def main() -> int:
    """0 where the goals are met, else 1."""
    quick, seed = bool(os.environ.get("QUICK")), int(os.environ.get("SEED", "1"))
    seeds = range(seed * 1000, seed * 1000 + (12 if quick else 200))
    began = time.monotonic()
    truths = {shape.name: true_capacity(shape, 60_000 if quick else 400_000) for shape in SHAPES}
    for name, truth in truths.items():
        print(f"{name}: true capacity {truth:.4g}/s")
    methods = {
        "search, 25,000 requests": lambda s, shape, t: searched(s, shape, t, 25_000),
        "search, 10,000 requests": lambda s, shape, t: searched(s, shape, t, 10_000),
        "plain bisection, 8 x 500": lambda s, shape, t: bisected(s, shape, t, 500, 8),
        "plain bisection, 8 x 3,000": lambda s, shape, t: bisected(s, shape, t, 3_000, 8),
    }
    results = {}
    for name, method in methods.items():
        ratios, requests = [], []
        for shape in SHAPES:
            found = [method(s, shape, truths[shape.name]) for s in seeds]
            told(f"  {name}, {shape.name}", *zip(*found, strict=True))
            ratios += [ratio for ratio, _ in found]
            requests += [count for _, count in found]
        results[name] = told(name, ratios, requests)
    main_, small = (results[f"search, {n} requests"] for n in ("25,000", "10,000"))
    met = (
        main_["overclaim_upper"] <= 0.03
        and main_["median_ratio"] >= 0.95
        and small["median_ratio"] >= 0.85
    )
    document = {**main_, "seconds": round(time.monotonic() - began, 1), "goals_met": met}
    print(json.dumps({**document, "methods": results}))
    return 0 if met or quick else 1


if __name__ == "__main__":
    sys.exit(main())
