"""`slo capacity`: the highest load that keeps the promise."""

from datetime import UTC, datetime
from pathlib import Path

import typer
from rich.console import Console

from slo import capacity_options as c
from slo import drive, slofile
from slo import options as o
from slo.ending import UsageError
from slo.objectives import Load

OVER = ("rate", "concurrency")
HTML = "capacity.html"


def capacity_(
    target: o.Target,
    slo: c.SloFile,
    over: c.Over = "rate",
    low: c.Low = None,
    high: c.High = None,
    resolution: c.Resolution = "5%",  # type: ignore[assignment]  # typer parses it
    budget: c.Budget = "60m",  # type: ignore[assignment]
    shortest: c.Shortest = "10s",  # type: ignore[assignment]
    cooldown: c.Cooldown = "60s",  # type: ignore[assignment]
    current: c.Current = None,
    model: o.Model = None,
    arrival: o.Arrival = None,
    mix: o.Mix = None,
    input_class: o.InputClass = None,
    max_tokens: o.MaxTokens = None,
    temperature: o.Temperature = None,
    ignore_eos: o.IgnoreEos = False,
    reasoning: o.Reasoning = None,
    seed: o.Seed = None,
    workers: o.Workers = 1,
    timeout: o.Timeout = None,
    max_in_flight: o.MaxInFlight = None,
    api_key_env: o.ApiKeyEnv = None,
    ready_timeout: o.ReadyTimeout = "60s",  # type: ignore[assignment]
    sidecar: o.Sidecar = "local",
    out: o.Out = None,
    force: o.Force = False,
) -> int:
    """Find the highest load that keeps the promise, and the lowest that breaks it.

    The answer is an interval: a rate that passes, a rate that fails, each with the confidence that
    slo.yaml asks for. The same command goes on with a search that was interrupted. Its folder is
    the last line; capacity.json in it holds all probes. Exits with 0 where a rate passes, 1 where
    even the lowest fails, 3 where nothing is proven, 4 where nothing could be measured.
    """
    from slo.capacity_probe import Setting, asked_of, judged_by  # scipy is slow to start
    from slo.capacity_run import limits_for, search, sentence

    if over not in OVER:
        raise UsageError(f"--over: {over!r} is not known; allowed: {', '.join(OVER)}")
    objectives = slofile.load_slo(slo)
    asked = _merged(Load(mix=mix, input_class=input_class, max_tokens=max_tokens), objectives.load)
    whole = over == "concurrency"
    load = drive.Load(
        target=target, rate_per_s=1.0, duration_s=1.0, model=model, **asked_of(asked),
        arrival=arrival or (None if whole else objectives.load.arrival), temperature=temperature,
        ignore_eos=ignore_eos, reasoning=reasoning, seed=seed, workers=workers, timeout_s=timeout,
        max_in_flight=max_in_flight, api_key_env=api_key_env, label="capacity",
    )  # fmt: skip
    folder = out or Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-capacity"
    setting = Setting(
        load, judged_by(objectives), folder, over, sidecar, ready_timeout, cooldown,
        Console(stderr=True),
    )  # fmt: skip
    limits = limits_for(
        objectives, low=low, high=high, resolution=resolution, budget_s=budget,
        shortest_s=shortest, whole=whole,
    )  # fmt: skip
    current = current or (None if whole else objectives.load.rate_per_s)
    found = search(setting, limits, current, force=force)
    assert found.answer is not None
    draw(folder)
    typer.echo(sentence(found.answer, whole=whole))
    if found.answer.knee is not None:
        knee = found.answer.knee
        typer.echo(f"At {knee.rate:.4g}: {knee.word}: {knee.sentence} {knee.next_step}")
    typer.echo(folder)
    return found.answer.exit_code


def _merged(asked: Load, wanted: Load) -> Load:
    return Load(
        mix=asked.mix or wanted.mix,
        input_class=asked.input_class or wanted.input_class,
        max_tokens=asked.max_tokens or wanted.max_tokens,
    )


def draw(folder: Path) -> None:
    """Write capacity.html beside capacity.json."""
    import reports.capacity  # loads matplotlib
    from slo.capacity_search import read_search
    from slo.rundir import write_atomic

    write_atomic(folder / HTML, reports.capacity.render(read_search(folder)))
