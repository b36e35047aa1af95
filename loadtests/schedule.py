"""When each request is due and what it asks: one seeded plan for any number of workers."""

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from loadtests.own_prompts import own_id, own_prompts
from loadtests.prompts import LANGS, prompt_id
from loadtests.trace import TraceRow, trace_rows
from slo.arrival import Process, parse, warped
from slo.input_lengths import lengths
from slo.record import Arrival, Phase

OWN = "own"  # the scenario of a user's own prompts


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be sent; the mix holds shares by scenario."""

    arrival: str  # as slo.arrival reads it
    rate_per_s: float
    warmup_s: float
    duration_s: float
    mix: dict[str, float]
    input_class: str  # as slo.input_lengths reads it
    max_tokens: int
    seed: int
    turns: int = 1  # of a session
    think_s: float = 0.0  # from a turn's end to when the next one is due
    shared_prefix: float = 0.0  # share of each prompt that is the same for all
    prompts: str | None = None  # file of a user's own prompts
    stretched: bool = False  # a trace's time is stretched to the rate
    trace_shared: float = 0.0  # share of a trace's prompts that stood at an earlier one's beginning

    @property
    def process(self) -> Process:
        """How arrivals are spread."""
        return parse(self.arrival)

    @property
    def end_s(self) -> float:
        """When nothing more is due."""
        return self.warmup_s + self.duration_s

    def phase(self, due_s: float) -> Phase:
        """Whether what is due then is judged."""
        return "warmup" if due_s < self.warmup_s else "measured"


Session = tuple[Arrival, ...]  # its turns; mostly one


def sessions(load: Load) -> Iterator[Session]:
    """All sessions of warm-up and measured window, in the order in which they are due.

    Times and contents are drawn from streams of their own, so that another mix keeps the times. Of
    a closed loop they never end, and none has a due time.
    """
    contents = random.Random(f"{load.seed}-contents")
    seq = 0
    for number, (due_s, traced) in enumerate(_starts(load)):
        session = tuple(_turns(load, contents, number, seq, due_s, traced))
        yield session
        seq += len(session)


def arrivals(load: Load) -> Iterator[Arrival]:
    """All turns of all sessions, by their numbers."""
    return itertools.chain.from_iterable(sessions(load))


def of_worker(plan: Iterator[Session], worker: int, workers: int) -> Iterator[Session]:
    """One worker's part: every n-th session. The parts together are the plan."""
    return itertools.islice(plan, worker, None, workers)


def due_times(load: Load) -> Iterator[float]:
    """Due times in [0, warm-up + duration), whole microseconds as schedule.csv has them."""
    process = load.process
    segments = process.segments(load.rate_per_s, load.warmup_s, load.duration_s)
    times = random.Random(f"{load.seed}-times")
    for time_s in warped(_units(times, process.shape), segments):
        if (due_s := round(time_s, 6)) < load.end_s:
            yield due_s


def _units(times: random.Random, shape: float) -> Iterator[float]:
    if math.isinf(shape):
        yield from map(float, itertools.count())
    at = 0.0
    while True:
        at += times.expovariate(1.0) if shape == 1 else times.gammavariate(shape, 1 / shape)
        yield at


def _starts(load: Load) -> Iterator[tuple[float | None, TraceRow | None]]:
    """When each session is due, and what a trace says of its requests."""
    if load.process.closed:
        yield from itertools.repeat((None, None))
    elif load.process.trace:
        for row in trace_rows(load.process.trace, load.rate_per_s if load.stretched else 0.0):
            if row.at_s >= load.end_s:
                return
            yield row.at_s, row
    else:
        yield from ((due_s, None) for due_s in due_times(load))


def _turns(
    load: Load,
    contents: random.Random,
    session: int,
    seq: int,
    due_s: float | None,
    traced: TraceRow | None,
) -> Iterator[Arrival]:
    scenario = contents.choices(list(load.mix), list(load.mix.values()))[0]
    lang = contents.choice(LANGS)
    phase = "measured" if due_s is None else load.phase(due_s)
    own = own_prompts(load.prompts)[_own_index(load, session)] if load.prompts else None
    for turn in range(load.turns if own is None else min(load.turns, len(own.turns))):
        input_class, max_tokens = _drawn_length(load.input_class, contents), load.max_tokens
        blocks: tuple[int, ...] = ()
        if traced is not None:
            input_class, max_tokens = str(traced.input_tokens), traced.output_tokens
            blocks = () if turn else traced.blocks
        if own is None:
            named = (scenario, lang, input_class, load.seed, seq + turn)
            name = prompt_id(*named, load.shared_prefix, blocks)
        else:
            name, scenario, lang, input_class = own_id(own.index, turn), OWN, "", OWN
            max_tokens = own.max_tokens or max_tokens
        yield Arrival(
            seq=seq + turn,
            due_s=None if turn else due_s,
            phase=phase,
            scenario=scenario,
            lang=lang,
            input_class=input_class,
            prompt_id=name,
            max_tokens=max_tokens,
            session=session,
            turn=turn,
            after_seq=seq + turn - 1 if turn else None,
            think_s=load.think_s if turn else None,
        )


def _drawn_length(text: str, contents: random.Random) -> str:
    low, high = contents.choice(lengths(text))
    return str(low if low == high else contents.randint(low, high))


def _own_index(load: Load, session: int) -> int:
    """Each prompt once, in an order of the seed's, before any comes again."""
    count = len(own_prompts(load.prompts or ""))
    turn, place = divmod(session, count)
    return _shuffled(count, f"{load.seed}-{turn}")[place]


@lru_cache(maxsize=2)
def _shuffled(count: int, seed: str) -> list[int]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order
