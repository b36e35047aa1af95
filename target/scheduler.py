"""Continuous batching in virtual time: no clock, no threads, no model.

The scheduler is vLLM's in small: running sequences come first, then waiting ones in their order,
as far as sequences, tokens of a step and KV blocks allow; long prompts are computed in chunks;
where KV memory runs out, the youngest sequence gives its memory back and is computed again later.
`simulate` runs it over a trace; the sim engine plays the same steps in real time.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from target.physics import BLOCK, Setup, step_s

# When work of so many seconds ends that begins at a time: here stalls and throttling come in.
Lasting = Callable[[float, float], float]


def undisturbed(start_s: float, work_s: float) -> float:
    """The end of work on a machine that nothing slows down."""
    return start_s + work_s


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace."""

    at_s: float
    prompt: int
    output: int


@dataclass(frozen=True, slots=True)
class Times:
    """When things happened to one request, in seconds from the start of the trace."""

    at_s: float
    started_s: float  # its first step began
    first_s: float
    last_s: float
    longest_gap_s: float  # between two of its tokens
    preemptions: int


@dataclass(slots=True, eq=False)
class Job:
    """A request inside the scheduler."""

    prompt: int
    output: int
    computed: int = 0  # tokens whose KV is held
    produced: int = 0
    blocks: int = 0
    preemptions: int = 0
    gone: bool = False  # ended or cancelled

    @property
    def left(self) -> int:
        """Tokens to compute before the next one can be sampled."""
        return self.prompt + self.produced - self.computed


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: which job computes how many tokens, and how long the step works."""

    chunks: list[tuple[Job, int]]
    work_s: float


@dataclass(slots=True)
class Scheduler:
    """Who runs, who waits, and who holds how much KV memory."""

    setup: Setup
    running: list[Job] = field(default_factory=list)
    waiting: deque[Job] = field(default_factory=deque)
    free: int = field(init=False)
    preemptions: int = 0

    def __post_init__(self) -> None:
        self.free = self.setup.blocks

    @property
    def kv_usage(self) -> float:
        """Share of the KV memory that is held."""
        return 1.0 - self.free / self.setup.blocks

    def add(self, job: Job) -> None:
        """Take a request in; raises ValueError where it can never fit."""
        if -(-(job.prompt + job.output) // BLOCK) > self.setup.blocks:
            tokens = self.setup.blocks * BLOCK
            raise ValueError(f"{job.prompt + job.output} tokens do not fit the KV cache: {tokens}")
        self.waiting.append(job)

    def remove(self, job: Job) -> None:
        """Forget a request at once, wherever it is; its memory is free for the next step."""
        if job.gone:
            return
        job.gone = True
        self._release(job)
        if job in self.running:
            self.running.remove(job)
        else:
            self.waiting.remove(job)

    def plan(self) -> Plan | None:
        """The next step, or None when there is nothing to do."""
        budget = self.setup.max_batched_tokens
        chunks: list[tuple[Job, int]] = []
        short = False
        position = 0
        while position < len(self.running) and budget:
            job = self.running[position]
            take = min(job.left, budget)
            while not self._reserve(job, take) and self.running[-1] is not job:
                self._preempt()
                short = True
            if job.blocks * BLOCK < job.computed + take:  # nobody else was left to give way
                self._preempt()
                short = True
                break
            chunks.append((job, take))
            budget -= take
            position += 1
        while self.waiting and not short and budget and len(self.running) < self.setup.max_num_seqs:
            job = self.waiting[0]
            take = min(job.left, budget)
            if not self._reserve(job, take):
                break
            self.running.append(self.waiting.popleft())
            chunks.append((job, take))
            budget -= take
        return Plan(chunks, self._work_s(chunks)) if chunks else None

    def _work_s(self, chunks: Iterable[tuple[Job, int]]) -> float:
        new = held = sampled = 0
        pairs = 0.0
        for job, take in chunks:
            new += take
            held += job.computed
            pairs += take * (job.computed + take / 2)
            sampled += take == job.left
        return step_s(self.setup, new, pairs, held, sampled) + self.setup.host_s

    def finish(self, plan: Plan) -> list[Job]:
        """Apply a step that ended; returns the jobs that got a token, ended ones included."""
        got = []
        for job, take in plan.chunks:
            if job.gone:  # cancelled while the step ran
                continue
            job.computed += take
            if job.left == 0:
                job.produced += 1
                got.append(job)
                if job.produced == job.output:
                    self.remove(job)
        return got

    def _reserve(self, job: Job, take: int) -> bool:
        wanted = -(-(job.computed + take) // BLOCK) - job.blocks
        if wanted > self.free:
            return False
        self.free -= wanted
        job.blocks += wanted
        return True

    def _release(self, job: Job) -> None:
        self.free += job.blocks
        job.blocks = 0

    def _preempt(self) -> None:
        job = self.running.pop()
        self._release(job)
        job.computed = 0
        job.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(job)


@dataclass(slots=True)
class Seen:
    """What `simulate` notes of a request on its way."""

    arrival: Arrival
    started_s: float = -1.0
    first_s: float = -1.0
    last_s: float = -1.0
    longest_gap_s: float = 0.0


def simulate(trace: Sequence[Arrival], setup: Setup, lasting: Lasting = undisturbed) -> list[Times]:
    """Run a trace, sorted by arrival, to its end; the same trace gives the same times.

    Raises:
        ValueError: a request can never fit the KV memory.
    """
    scheduler = Scheduler(setup)
    jobs = [Job(arrival.prompt, arrival.output) for arrival in trace]
    seen = {job: Seen(arrival) for job, arrival in zip(jobs, trace, strict=True)}
    now, coming = 0.0, 0
    while True:
        while coming < len(trace) and trace[coming].at_s <= now:
            scheduler.add(jobs[coming])
            coming += 1
        plan = scheduler.plan()
        if plan is None:
            if coming == len(trace):
                break
            now = trace[coming].at_s
            continue
        for job, _ in plan.chunks:
            if job.computed == 0 and seen[job].started_s < 0:
                seen[job].started_s = now
        now = lasting(now, plan.work_s)
        for job in scheduler.finish(plan):
            note = seen[job]
            if note.first_s < 0:
                note.first_s = now
            else:
                note.longest_gap_s = max(note.longest_gap_s, now - note.last_s)
            note.last_s = now
    return [
        Times(n.arrival.at_s, n.started_s, n.first_s, n.last_s, n.longest_gap_s, job.preemptions)
        for job, n in seen.items()
    ]
