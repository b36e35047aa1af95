"""What a load is, and the load engine's command line for it."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from slo import rundir


@dataclass(frozen=True, slots=True)
class Load:
    """What to send. None leaves the load engine's own default."""

    target: str
    rate_per_s: float | None
    duration_s: float
    model: str | None = None
    warmup_s: float | None = None
    arrival: str | None = None
    mix: dict[str, float] | None = None
    input_class: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    ignore_eos: bool = False
    reasoning: str | None = None
    seed: int | None = None
    workers: int = 1
    timeout_s: float | None = None
    max_in_flight: int | None = None
    max_requests: int | None = None
    max_total_tokens: int | None = None
    api_key_env: str | None = None
    label: str | None = None
    store_answers: bool = False
    prompts: Path | None = None
    turns: int | None = None
    think_s: float | None = None
    shared_prefix: float | None = None
    min_tokens: int | None = None
    tokenizer: str | None = None
    connections: str | None = None
    receive_clock: str | None = None
    expect_workers: int | None = None  # of other machines, which join at `worker_port`
    worker_port: int | None = None


def arguments(load: Load, directory: Path) -> list[str]:
    """The load engine's options for a load."""
    mix = load.mix and ",".join(f"{name}={share!r}" for name, share in load.mix.items())
    values = {
        "--host": load.target,
        "--rate": None if load.rate_per_s is None else f"{load.rate_per_s!r}/s",
        "--duration": f"{load.duration_s!r}s",
        "--warmup": None if load.warmup_s is None else f"{load.warmup_s!r}s",
        "--arrival": load.arrival,
        "--mix": mix,
        "--input-class": load.input_class,
        "--max-tokens": load.max_tokens,
        "--temperature": load.temperature,
        "--top-p": load.top_p,
        "--reasoning": load.reasoning,
        "--seed": load.seed,
        "--timeout": None if load.timeout_s is None else f"{load.timeout_s!r}s",
        "--max-in-flight": load.max_in_flight,
        "--max-requests": load.max_requests,
        "--max-total-tokens": load.max_total_tokens,
        "--api-key-env": load.api_key_env,
        "--prompts": load.prompts,
        "--turns": load.turns,
        "--think-time": None if load.think_s is None else f"{load.think_s!r}s",
        "--shared-prefix": load.shared_prefix,
        "--min-tokens": load.min_tokens,
        "--tokenizer": load.tokenizer,
        "--connections": load.connections,
        "--receive-clock": load.receive_clock,
        "--model": load.model,
        "--label": load.label,
        "--out": directory,
        "--processes": load.workers if load.workers > 1 and not load.expect_workers else None,
    }
    flags = {"--ignore-eos": load.ignore_eos, "--store-answers": load.store_answers}
    given = [f"{name}={value}" for name, value in values.items() if value is not None]
    return given + [name for name, wanted in flags.items() if wanted]


def default_directory(load: Load, now: datetime) -> Path:
    """Where a load's run lies that was given no --out."""
    name = rundir.name_of_load(load.label, load.mix or (), load.rate_per_s, str(load.arrival))
    return rundir.default_directory(name, now)
