"""Queues in a steady state whose true percentiles are known, many runs of one at a time.

`runs` gives for each run when requests were due and how long they took, in seconds; a request that
found the queue full has no latency: inf.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from target.capacity import stable_capacity
from target.physics import GPUS, Setup
from target.scheduler import Arrival, simulate

Floats = NDArray[np.float64]
Times = tuple[Floats, Floats]  # due, latency

_BURN = 4000
_AT_ONCE = 200
_LN = math.log(2)  # of a lognormal with coefficient of variation 1

SETUP = Setup(GPUS["l4"], max_num_seqs=4, kv_blocks=4000)
_PROMPT, _OUTPUT = 256, 16


@dataclass(frozen=True, slots=True)
class Queue:
    """M/M/1, M/D/1, M/LN/1, the sim engine, or M/M/1 with room for `room` requests."""

    kind: str  # M, D, LN, sim, loss
    load: float
    rate_per_s: float
    duration_s: float
    room: int = 0

    @property
    def expected(self) -> int:
        return round(self.rate_per_s * self.duration_s)

    @property
    def name(self) -> str:
        return {"sim": "sim engine", "loss": f"M/M/1/{self.room}"}.get(
            self.kind, f"M/{self.kind}/1"
        )


def sim_queue(load: float, duration_s: float) -> Queue:
    """The sim engine at a share of the rate that it can bear."""
    return Queue("sim", load, load * stable_capacity(SETUP, _PROMPT, _OUTPUT), duration_s)


def runs(queue: Queue, count: int, seed: int) -> Iterator[Times]:
    """So many runs of it."""
    place = (queue.expected, round(queue.duration_s), round(1000 * queue.load), ord(queue.kind[0]))
    rng = np.random.default_rng([seed, *place])
    while count > 0:
        batch = min(count, 1 if queue.kind == "sim" else _AT_ONCE)
        due, latency = _simulated(queue, rng, batch, int(queue.expected * 1.2) + 200)
        for one_due, one_latency in zip(due, latency, strict=True):
            inside = one_due < queue.duration_s
            yield one_due[inside], one_latency[inside]
        count -= batch


@cache
def true_percentile(queue: Queue, percentile: float) -> float:
    """By formula for M/M/1, else out of one long simulation."""
    if queue.kind == "M":
        service_s = queue.load / queue.rate_per_s
        return -service_s * math.log(1 - percentile / 100) / (1 - queue.load)
    count = 1 if queue.kind == "sim" else 40
    _, latency = _simulated(queue, np.random.default_rng(99), count, 100_000)
    return float(np.quantile(latency, percentile / 100))


def true_loss(queue: Queue) -> float:
    """Share of requests that find the queue full."""
    load, room = queue.load, queue.room
    return (1 - load) * load**room / (1 - load ** (room + 1))


def _simulated(queue: Queue, rng: np.random.Generator, count: int, n: int) -> Times:
    if queue.kind == "sim":
        return _sim(queue, rng, n)
    service_s = queue.load / queue.rate_per_s
    gaps = rng.exponential(1 / queue.rate_per_s, (count, n + _BURN))
    service = service_s * _service(queue.kind, rng, gaps.shape)
    at = np.cumsum(gaps, axis=1)
    latency = _bounded(at, service, queue.room) if queue.room else _lindley(gaps, service)
    return at[:, _BURN:] - at[:, _BURN - 1 : _BURN], latency[:, _BURN:]


def _service(kind: str, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    if kind == "D":
        return np.ones(shape)
    if kind == "LN":
        return np.exp(rng.normal(-0.5 * _LN, math.sqrt(_LN), shape))
    return rng.exponential(1.0, shape)


def _lindley(gaps: Floats, service: Floats) -> Floats:
    """Waiting and service: W' = max(0, W + S - A), as a running minimum."""
    steps = np.zeros_like(service)
    steps[:, 1:] = service[:, :-1] - gaps[:, 1:]
    walk = np.cumsum(steps, axis=1)
    waiting = walk - np.minimum.accumulate(np.minimum(walk, 0), axis=1)
    latency: Floats = waiting + service
    return latency


def _bounded(at: Floats, service: Floats, room: int) -> Floats:
    """A queue that turns away what finds it full."""
    count, n = at.shape
    ends, last = np.full((count, room), -1.0), np.zeros(count)
    latency, every = np.empty_like(at), np.arange(count)
    for j in range(n):
        now = at[:, j]
        taken = (ends > now[:, None]).sum(axis=1) < room
        end = np.maximum(last, now) + service[:, j]
        last = np.where(taken, end, last)
        oldest = np.argmin(ends, axis=1)
        ends[every[taken], oldest[taken]] = end[taken]
        latency[:, j] = np.where(taken, end - now, np.inf)
    return latency


def _sim(queue: Queue, rng: np.random.Generator, n: int) -> Times:
    """Time to first token of the sim engine; answers of random length around the same mean."""
    burn = 300
    at = np.cumsum(rng.exponential(1 / queue.rate_per_s, n + burn))
    outputs = rng.geometric(1 / _OUTPUT, n + burn)
    trace = [Arrival(float(t), _PROMPT, int(o)) for t, o in zip(at, outputs, strict=True)]
    first = np.array([times.first_s for times in simulate(trace, SETUP)])
    return (at[burn:] - at[burn - 1])[None], (first - at)[None, burn:]
