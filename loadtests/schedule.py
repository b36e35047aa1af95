"""When each request is due and what it asks: one seeded plan for any number of workers."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from loadtests.prompts import INPUT_CLASSES, LANGS, prompt_id
from slo.record import Arrival

ARRIVALS = ("constant", "poisson")


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be sent; the mix holds shares by scenario."""

    arrival: str
    rate_per_s: float
    warmup_s: float
    duration_s: float
    mix: dict[str, float]
    input_class: str  # one of INPUT_CLASSES, or "mixed": equal parts of them
    max_tokens: int
    seed: int


def arrivals(load: Load) -> Iterator[Arrival]:
    """All arrivals of warm-up and measured window, in the order in which they are due.

    Times and contents are drawn from streams of their own, so that another mix keeps the times.
    """
    contents = random.Random(f"{load.seed}-contents")
    scenarios, shares = list(load.mix), list(load.mix.values())
    classes = INPUT_CLASSES if load.input_class == "mixed" else (load.input_class,)
    for seq, due_s in enumerate(due_times(load)):
        scenario = contents.choices(scenarios, shares)[0]
        lang, input_class = contents.choice(LANGS), contents.choice(classes)
        yield Arrival(
            seq=seq,
            due_s=due_s,
            phase="warmup" if due_s < load.warmup_s else "measured",
            scenario=scenario,
            lang=lang,
            input_class=input_class,
            prompt_id=prompt_id(scenario, lang, input_class, load.seed, seq),
            max_tokens=load.max_tokens,
            session=seq,
        )


def due_times(load: Load) -> Iterator[float]:
    """Due times in [0, warm-up + duration), whole microseconds as schedule.csv has them."""
    end_s = load.warmup_s + load.duration_s
    if load.arrival == "constant":
        # Multiplied, not added up: the last of a million is as exact as the first.
        for seq in range(math.ceil(end_s * load.rate_per_s)):
            due_s = round(seq / load.rate_per_s, 6)
            if due_s < end_s:
                yield due_s
        return
    times = random.Random(f"{load.seed}-times")
    at_s = 0.0
    while (at_s := at_s + times.expovariate(load.rate_per_s)) < end_s:
        yield round(at_s, 6)


def of_worker(plan: Iterator[Arrival], worker: int, workers: int) -> Iterator[Arrival]:
    """One worker's part: every n-th session, all turns of it. The parts together are the plan."""
    return (arrival for arrival in plan if arrival.session % workers == worker)
