"""Where the capacity may lie, given the probes so far: what decides which rate is asked next.

Near its capacity, the odds of being over a limit grow with a power of the rate. Two numbers say
how: the rate at which the allowed share is over, and the power. Their likelihood is computed on a
grid. Nothing is proven by it: a wrong fit costs requests, never a wrong answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from slo.capacity import Evidence, Probe, pooled, usable
from slo.latencies import Floats

_POINTS = 101
_POWERS = np.geomspace(3.0, 48.0, 5)
# A share is never taken for more extreme than this: far from the capacity the power law is wrong.
_LEAST, _MOST = 1e-4, 0.99


@dataclass(frozen=True, slots=True)
class Fit:
    """Capacities of one objective on a grid of rates, each with a power and its probability."""

    objective: str
    allowed: float
    confidence: float
    log_rates: Floats
    powers: Floats
    weights: Floats  # sums to 1; rates by powers

    @property
    def log_capacity(self) -> float:
        """The median of the capacity's logarithm."""
        sums = np.cumsum(self.weights.sum(axis=1))
        return float(self.log_rates[np.searchsorted(sums, 0.5)])

    def pass_chance(self, log_rate: float, held: Evidence | None, worth: float) -> float:
        """How likely `worth` more requests at a rate, with those held, prove the promise kept."""
        return self._chance(log_rate, held, worth, sign=1.0)

    def fail_chance(self, log_rate: float, held: Evidence | None, worth: float) -> float:
        """How likely they prove it broken."""
        return self._chance(log_rate, held, worth, sign=-1.0)

    def _chance(self, log_rate: float, held: Evidence | None, worth: float, sign: float) -> float:
        known, over = (held.worth, held.over) if held else (0.0, 0.0)
        total, allowed = known + worth, self.allowed
        reach = norm.ppf(self.confidence) * np.sqrt(total * allowed * (1 - allowed)) + 0.5
        share = expit(logit(allowed) + self.powers * (log_rate - self.log_rates[:, None]))
        spread = np.sqrt(worth * share * (1 - share)) + 1e-9
        room = sign * (total * allowed - over - worth * share) - reach
        return float((self.weights * norm.cdf(room / spread)).sum())


def fits(probes: Sequence[Probe], low: float, high: float) -> list[Fit]:
    """One fit an objective, over capacities from `low` to `high` and a little beyond."""
    known = [probe for probe in usable(probes) if probe.evidence]
    names = dict.fromkeys(one.objective for probe in known for one in probe.evidence)
    return [_fit(known, name, low, high) for name in names]


def _fit(probes: Sequence[Probe], objective: str, low: float, high: float) -> Fit:
    log_rates = np.linspace(np.log(low) - 0.1, np.log(high) + 0.1, _POINTS)
    first = pooled(probes, objective)
    likelihood = np.zeros((_POINTS, len(_POWERS)))
    for probe in probes:
        seen = pooled([probe], objective)
        over = min(seen.over, seen.worth)
        odds = logit(first.allowed) + _POWERS * (np.log(probe.rate) - log_rates[:, None])
        share = np.clip(expit(odds), _LEAST, _MOST)
        likelihood += over * np.log(share) + (seen.worth - over) * np.log1p(-share)
    weights = np.exp(likelihood - likelihood.max())
    return Fit(
        objective, first.allowed, first.confidence, log_rates, _POWERS, weights / weights.sum()
    )


def per_request(probes: Sequence[Probe], objective: str, rate: float) -> float:
    """How much one request is worth at a rate: as in the probe nearest to it."""
    known = [probe for probe in usable(probes) if probe.evidence and probe.requests]
    nearest = min(known, key=lambda probe: (abs(np.log(probe.rate / rate)), -probe.requests))
    return pooled([nearest], objective).worth / nearest.requests
