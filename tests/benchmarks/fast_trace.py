"""`target.scheduler.simulate`, a hundred times faster: decode steps between events in closed form.

The same scheduler and the same step times, without what cannot happen here: KV memory must be
enough for all places, and nothing slows the machine down. tests/slo/test_capacity.py compares the
two on a short trace.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from target.physics import (
    BLOCK,
    HEAD_DIM,
    HEAD_PARAMETERS,
    HEADS,
    LAYER_PARAMETERS,
    LAYERS,
    NORM_PARAMETERS,
    Setup,
    read_bytes,
)


@dataclass(slots=True)
class Machine:
    """A simulated server between two events. Seconds a step: of bytes, and of multiplications."""

    setup: Setup
    prompt: Sequence[int]
    output: Sequence[int]
    now_s: float = 0.0
    steps: int = 0
    decoding: int = 0
    held: int = 0  # tokens of KV of those that decode
    ends: list[tuple[int, int]] = field(default_factory=list)  # the step after which a job is done
    part: int = -1  # the job whose prompt is computed in part
    computed: int = 0  # tokens of it
    first_s: list[float] = field(init=False)
    last_s: list[float] = field(init=False)

    def __post_init__(self) -> None:
        most = max(p + o for p, o in zip(self.prompt, self.output, strict=True))
        assert -(-most // BLOCK) * self.setup.max_num_seqs <= self.setup.blocks, (
            "KV memory is short"
        )
        self.first_s = [0.0] * len(self.prompt)
        self.last_s = [0.0] * len(self.prompt)

    def step_s(self, new: int, pairs: float, held: int, sampled: int) -> float:
        """As target.physics.step_s, with the host's part."""
        gpu = self.setup.gpu
        moved = read_bytes(self.setup) + (held + new) * self.setup.kv_token_bytes
        layers = 2.0 * (LAYERS * LAYER_PARAMETERS + NORM_PARAMETERS) * new
        attention = 4.0 * LAYERS * HEADS * HEAD_DIM * pairs
        flops = layers + attention + 2.0 * HEAD_PARAMETERS * sampled
        return max(moved / gpu.bandwidth, flops / gpu.flops) + self.setup.host_s

    def decode(self, until_s: float) -> None:
        """Decode until the first job ends, or until the first step that ends at `until_s` or later.

        Both parts of a step's time grow evenly from step to step, so that their sums are known; a
        stretch ends where the other part becomes the longer one.
        """
        setup, batch, held = self.setup, self.decoding, self.held
        kv = setup.kv_token_bytes / setup.gpu.bandwidth
        attention = 4.0 * LAYERS * HEADS * HEAD_DIM / setup.gpu.flops
        fixed = 2.0 * (LAYERS * LAYER_PARAMETERS + NORM_PARAMETERS + HEAD_PARAMETERS)
        moved = read_bytes(setup) / setup.gpu.bandwidth + (held + batch) * kv
        counted = fixed / setup.gpu.flops * batch + attention * (held + batch / 2)
        more_moved, more_counted = kv * batch, attention * batch
        if moved < counted:
            moved, counted = counted, moved
            more_moved, more_counted = more_counted, more_moved
        count = self.ends[0][0] - self.steps
        if moved + more_moved * (count - 1) < counted + more_counted * (count - 1):
            count = max(1, int((moved - counted) / (more_counted - more_moved)) + 1)
        first, more = moved + setup.host_s, more_moved
        if until_s < math.inf:
            gap, middle = until_s - self.now_s, first - more / 2
            root = math.sqrt(middle * middle + 2 * more * gap)
            count = min(count, max(1, math.ceil(2 * gap / (middle + root) - 1e-12)))
        self.now_s += count * first + more * (count * (count - 1)) / 2
        self.steps += count
        self.held += count * batch

    def mixed(self, waiting: int, coming: int) -> int:
        """One step with prompts in it; returns the first job that still waits."""
        budget, seats = self.setup.max_batched_tokens - self.decoding, self.setup.max_num_seqs
        new, read, pairs = self.decoding, self.held, self.held + self.decoding / 2
        done, seats = [], seats - self.decoding
        while budget and seats > 0 and (self.part >= 0 or waiting < coming):
            if self.part < 0:
                self.part, self.computed = waiting, 0
                waiting += 1
            take = min(self.prompt[self.part] - self.computed, budget)
            new, read = new + take, read + self.computed
            pairs += take * (self.computed + take / 2)
            budget, seats, self.computed = budget - take, seats - 1, self.computed + take
            if self.computed == self.prompt[self.part]:
                done.append(self.part)
                self.part = -1
        self.now_s += self.step_s(new, pairs, read, self.decoding + len(done))
        self.steps += 1
        self.held += self.decoding
        for job in done:
            self.first_s[job] = self.now_s
            heapq.heappush(self.ends, (self.steps + self.output[job] - 1, job))
            self.decoding += 1
            self.held += self.prompt[job]
        return waiting

    def leave(self) -> None:
        """Let the jobs go that got their last token."""
        while self.ends and self.ends[0][0] <= self.steps:
            _, job = heapq.heappop(self.ends)
            self.last_s[job] = self.now_s
            self.decoding -= 1
            self.held -= self.prompt[job] + self.output[job] - 1


def run(
    at_s: Sequence[float], prompt: Sequence[int], output: Sequence[int], setup: Setup
) -> tuple[list[float], list[float]]:
    """When each request got its first and its last token."""
    machine = Machine(setup, prompt, output)
    waiting = coming = 0
    while True:
        while coming < len(at_s) and at_s[coming] <= machine.now_s:
            coming += 1
        room = machine.decoding < setup.max_num_seqs
        if machine.part >= 0 or (waiting < coming and room):
            waiting = machine.mixed(waiting, coming)
        elif machine.decoding:
            next_s = at_s[coming] if room and coming < len(at_s) else math.inf
            machine.decode(next_s)
        elif coming < len(at_s):
            machine.now_s = at_s[coming]
        else:
            return machine.first_s, machine.last_s
        machine.leave()
