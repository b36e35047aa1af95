"""run.json as a value: what was asked of a run, where it ran, and how it ended."""

from dataclasses import dataclass

SCHEMA = "1.0"


@dataclass(frozen=True, slots=True)
class Counts:
    """Every arrival ends as one of completed, failed, dropped or (after a stop) not_started."""

    scheduled: int
    sent: int = 0
    completed: int = 0
    failed: int = 0
    dropped: int = 0
    not_started: int = 0


@dataclass(frozen=True, slots=True)
class Lateness:
    """Due to sent, of the requests that were sent."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One load worker: its clock against the master's, and what it says it did."""

    index: int
    name: str
    clock_offset_ns: int
    clock_bound_ns: int
    records: int | None = None  # None: it never reported its end


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why a run ended before its schedule did."""

    at_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Imported:
    """Which other tool made a run, and what cannot be judged of it."""

    tool: str
    unknown: tuple[str, ...]  # metrics that its file does not hold
    due_known: bool  # False: only when requests were sent, so that latencies count from there
    why: str


@dataclass(frozen=True, slots=True)
class Client:
    """What the load engine itself took: sums over its workers, shares and sizes of the busiest."""

    cpu_share: float  # of one core
    rss_mib: float
    loop_lag: Lateness | None = None  # of the event loop, against a beat of 20 ms
    connects: int = 0
    connect: Lateness | None = None  # from connect() until a connection can be written to
    clock_step_ms: float = 0.0  # the largest step of the wall clock that was noticed
    late_workers: tuple[str, ...] = ()  # joined when the run had begun, and have no part in it


@dataclass(frozen=True, slots=True)
class Run:
    """run.json: written before the first request, and again at the end."""

    id: str
    label: str
    seed: int
    arrival: str
    rate_per_s: float
    duration_s: float
    warmup_s: float
    mix: dict[str, float]
    target_url: str
    api_path: str
    model: str | None
    timeout_s: float
    max_in_flight: int
    sampling: dict[str, float | int | None]  # temperature, top_p, max_tokens, min_tokens
    reasoning: str  # tag | prompt-opened | field | none | unknown
    versions: dict[str, str]
    git_sha: str | None
    host: dict[str, str | int]
    workers: tuple[WorkerInfo, ...]
    started_at: str
    t0_wall_ns: int
    t0_mono_ns: int
    counts: Counts
    lateness: Lateness | None = None
    finished: bool = False
    stopped: Stopped | None = None
    imported: Imported | None = None
    input_class: str | None = None
    ignore_eos: bool | None = None
    # turns, think_s, shared_prefix (shared_by: "trace" or None), prompts, tokenizer,
    # connections (reused | fresh)
    options: dict[str, float | int | str | None] | None = None
    receive_clock: str | None = None  # kernel | process: who stamped what came
    client: Client | None = None
    schema: str = SCHEMA

    @property
    def window_s(self) -> tuple[float, float]:
        """Start and end of the measured window; a run that was stopped ends it early."""
        end = self.warmup_s + self.duration_s
        if self.stopped is not None:
            end = min(end, self.stopped.at_s)
        return self.warmup_s, max(end, self.warmup_s)
