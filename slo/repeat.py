"""Which load to send again where a line of a run could not be judged."""

import math

from slo import arrival
from slo.measurements import Measurements
from slo.objectives import Objective, Slo
from slo.quantile_test import Decision
from slo.quantities import show_s

# Of a check that the same load would not hold either: what to change.
_CHANGES = {
    "origin": "Measure it with `slo run`, which keeps what another tool's file does not hold.",
    "timeout": "Repeat the run with a --timeout above the limit.",
    "judged": "Repeat the run with a --mix that has that scenario.",
}


def advice(
    objective: Objective, decision: Decision, measured: Measurements, slo: Slo, check: str
) -> str:
    """What the next run is to be, where a check voids this line.

    Rate and duration as asked, or as long as it takes to decide it.
    """
    if check in _CHANGES:
        return _CHANGES[check]
    run, asked = measured.run, slo.load
    duration_s = max(
        asked.duration_s or run.duration_s, slo.validity.duration_s, *objective.limits_s, 0.0
    )
    rate_per_s, arrivals = asked.rate_per_s or run.rate_per_s, asked.arrival or run.arrival
    if _has_rate(arrivals) or not rate_per_s:
        return f"Repeat the run with arrivals {arrivals} for {show_s(duration_s)}."
    needed = decision.requests + decision.more if decision.more else 0
    needed_s = needed / (rate_per_s * _share(objective.scenario, measured, slo))
    if needed_s > duration_s:
        decides = f": about {needed:,} requests would decide it"
        return f"Repeat the run at {rate_per_s:g}/s for {show_s(math.ceil(needed_s))}{decides}."
    about = f" (about {rate_per_s * duration_s:,.0f} requests)"
    return f"Repeat the run at {rate_per_s:g}/s for {show_s(duration_s)}{about}."


def _has_rate(arrivals: str) -> bool:
    try:
        return arrival.parse(arrivals).has_rate
    except ValueError:  # another tool's
        return False


def _share(scenario: str, measured: Measurements, slo: Slo) -> float:
    """Of the requests, those of a scenario: as they came, or as the mix has it if none did."""
    every, of = int(measured.judged().sum()), int(measured.judged(scenario).sum())
    if of:
        return of / every
    return (slo.load.mix or measured.run.mix).get(scenario) or 1.0
