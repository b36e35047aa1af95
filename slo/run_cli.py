"""The command `slo run`: from its options to a load, and from the load to a run directory."""

from pathlib import Path
from typing import Any

import typer

from slo import check_cli, drive, slofile
from slo import options as o
from slo.check_cli import stderr
from slo.objectives import Load, Slo

# Options that the load takes under another name.
_OTHERWISE = {"timeout": "timeout_s", "think_time": "think_s"}


def run_(
    target: o.Target,
    model: o.Model = None,
    rate: o.Rate = None,
    duration: o.Duration = None,
    warmup: o.Warmup = None,
    arrival: o.Arrival = None,
    mix: o.Mix = None,
    input_class: o.InputClass = None,
    shared_prefix: o.SharedPrefix = None,
    prompts: o.Prompts = None,
    turns: o.Turns = None,
    think_time: o.ThinkTime = None,
    max_tokens: o.MaxTokens = None,
    min_tokens: o.MinTokens = None,
    temperature: o.Temperature = None,
    top_p: o.TopP = None,
    ignore_eos: o.IgnoreEos = False,
    reasoning: o.Reasoning = None,
    tokenizer: o.Tokenizer = None,
    seed: o.Seed = None,
    workers: o.Workers = 1,
    expect_workers: o.ExpectWorkers = None,
    worker_port: o.WorkerPort = 5557,
    timeout: o.Timeout = None,
    connections: o.Connections = None,
    receive_clock: o.ReceiveClock = None,
    max_in_flight: o.MaxInFlight = None,
    max_requests: o.MaxRequests = None,
    max_total_tokens: o.MaxTotalTokens = None,
    api_key_env: o.ApiKeyEnv = None,
    ready_timeout: o.ReadyTimeout = "60s",  # type: ignore[assignment]  # typer parses it
    sidecar: o.Sidecar = "local",
    slo: o.SloFile = None,
    label: o.Label = None,
    out: o.Out = None,
    store_answers: o.StoreAnswers = False,
    force: o.Force = False,
) -> int:
    """Load a target; the run's directory is the last line.

    Options that are not given come from the load: of --slo, then from the defaults named here.
    Ctrl-C ends the run early: open requests get a short time, and what was measured is kept.
    """
    return _run(**locals())


def _run(
    *,
    slo: Path | None,
    out: Path | None,
    force: bool,
    ready_timeout: float,
    sidecar: str,
    **given: Any,
) -> int:
    objectives = slofile.load_slo(slo) if slo else None
    names = ("rate", "arrival", "duration", "warmup", "mix", "input_class", "max_tokens")
    asked = Load(*[given.pop(name) for name in names])
    wanted = o.filled_in(asked, objectives.load if objectives else Load())
    load = drive.Load(
        **wanted, **{_OTHERWISE.get(name, name): value for name, value in given.items()}
    )
    check_cli.say_what_cannot_pass(objectives, load.rate_per_s, load.duration_s)
    directory, code = drive.run(
        load, out, force=force, ready_timeout_s=ready_timeout, gpu=sidecar, console=stderr()
    )
    return finished(directory, code, objectives)


def finished(directory: Path, code: int, objectives: Slo | None) -> int:
    """Judge the run if that was asked for; its directory is the last line in any case."""
    try:
        if objectives is None or code == drive.EXIT_INTERRUPTED:
            return code
        return check_cli.judged(directory, objectives).exit_code
    finally:
        typer.echo(directory)
